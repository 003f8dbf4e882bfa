"""Claims about loops, as comments in generated C: whether the compiler makes vectors of an innermost loop, or why not.

A claim stands in front of the loop, with the pragma of a vector loop. Tests compare the claims with what GCC and clang report.
"""

from __future__ import annotations

from collections.abc import Iterable
from enum import StrEnum

import torch

from fxstack_inductor.codegen.c.text import UNROLLED
from fxstack_inductor.ir.kernel import Check, Compute, Constant, Kernel, Loop

CALLS = frozenset({"fmod", "remainder", "floordiv", "lgamma"})
"""Operations of floats that call functions without a vector version."""
DIVISIONS = frozenset({"fmod", "remainder", "floordiv", "truncdiv"})
"""Operations of integers that divide."""


class Claim(StrEnum):
    """What a comment in front of a loop says."""

    VECTOR = "vector"
    SHORT = "written out or vector, because it has few points"
    CONVERSION = "vector with AVX-512, because it converts between floats and 64-bit integers"
    FUNCTION = "scalar because it calls a function that has no vector version"
    DIVISION = "scalar because processors divide no vectors of integers"
    ORDER = "scalar because each element needs the element before it"
    POSITION = "scalar because it keeps the position of an extreme"
    COLLISION = "scalar because stores may meet in one element"
    CHECKS = "scalar because it only checks indices"
    PLACES = "scalar because processors read elements at places one by one"

    @property
    def comment(self) -> str:
        """The claim as a comment in C."""
        return f"/* {self} */"


UNVECTORISED = '__asm__ volatile("");'
"""Prevents vectorisation of a surrounding loop."""
FLAG_CLAUSE = " reduction(|:bad)"
"""The clause of a vector loop in which index checks may set the function's flag."""
ONE_BY_ONE = f"#pragma GCC unroll 8 {Claim.PLACES.comment}"
"""The pragma of a loop that ends with ``UNVECTORISED``: instructions that gather elements take longer, on most processors."""


def checks_indices(kernel: Kernel) -> bool:
    """Whether the kernel checks an index that no earlier kernel has checked."""
    return any(isinstance(v, Check) and not v.done for v in kernel.values)


def claim(kernel: Kernel, computed: Iterable[int], loop: Loop | None) -> Claim:
    """Return the claim about a vector loop with the values ``computed``; ``loop`` is None for a loop over a piece of one."""
    size = None if loop is None else loop.extent.as_int()
    if size is not None and size <= UNROLLED:
        return Claim.SHORT
    found = {_of_value(kernel, value) for k in computed if isinstance(value := kernel.values[k], Compute)}
    return next(
        (each for each in (Claim.FUNCTION, Claim.DIVISION, Claim.CONVERSION) if each in found), Claim.VECTOR
    )


def _of_value(kernel: Kernel, value: Compute) -> Claim:
    """Return what an operation makes of its loop."""
    kinds = {value.dtype, *(kernel.values[k].dtype for k in value.args)}
    floats = any(kind.is_floating_point for kind in kinds)
    if value.op in CALLS and floats:
        return Claim.FUNCTION
    if value.op in DIVISIONS and not floats:
        narrow = value.dtype is not torch.int64 and isinstance(kernel.values[value.args[1]], Constant)
        return (
            Claim.VECTOR if narrow else Claim.DIVISION
        )  # narrow divisions by a constant are multiplications
    wide = torch.int64 in kinds or torch.uint8 is value.dtype
    return Claim.CONVERSION if value.op == "cast" and floats and wide else Claim.VECTOR
