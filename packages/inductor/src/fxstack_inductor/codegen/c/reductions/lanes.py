"""Write reductions along rows of known length: partial results in arrays of lanes, folded at the end.

``#pragma omp simd reduction`` keeps one vector of partial results and adds its lanes one after the other at
the end of each row, which takes as long as a hundred elements. Here every lane is an element of an array that
the compiler keeps in registers, and halves are added to halves. Several vectors of lanes do not wait for each
other. The number of lanes does not depend on what the kernel computes besides: fusion does not change a sum.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass

from fxstack_inductor.codegen.c.reductions.combine import Accumulator, plain_step
from fxstack_inductor.ir.kernel import Kernel, Load, Scan

# Limits: rows of symbolic length, or of a length that is not a multiple of 16, use '#pragma omp simd
# reduction', which adds lanes in order. Short rows then take up to a third longer.

WIDTHS = (64, 32, 16)
"""Numbers of lanes, largest first; a row must be a multiple of the number."""

VECTOR = 64
"""Bytes of a vector. GCC makes all vectors of a loop as long as the vectors of the narrowest elements. With fewer
lanes than a vector has bytes, or with half-precision numbers, GCC makes short vectors of everything.
"""

FOLDED = 16
FOLDS = frozenset(
    {
        "fold_sum_float",
        "fold_sum_double",
        *(f"fold_{op}_{key}" for op in ("max", "min") for key in ("int32_t", "int64_t")),
    }
)
"""Functions of ``prelude.h`` that fold ``FOLDED`` lanes."""


@dataclass(frozen=True, slots=True)
class Lanes:
    """The ``width`` lanes of the reduction at ``position``."""

    position: int
    op: str
    """The reduction, for example ``sum``."""
    how: Accumulator
    """The C text of the reduction."""
    width: int

    @property
    def name(self) -> str:
        """The name of the array of lanes."""
        return f"lane{self.position}"

    def declare(self, start: str) -> Iterator[str]:
        """Yield C that declares the lanes. ``start``: the result so far, with which the lanes of an extreme start."""
        kind, first = self.how.register, self.how.identity
        if self.how.key:
            kind, first = self.how.key, f"{self.op}_key_{self.how.register}({start})"
            yield f"const {kind} first{self.position} = {first};"
            first = f"first{self.position}"
        yield f"{kind} {self.name}[{self.width}] __attribute__((aligned(64)));"
        yield f"for (int64_t j = 0; j < {self.width}; j++) {self.name}[j] = {first};"

    def step(self, x: str) -> str:
        """Return the statement that takes ``x`` into lane ``j``."""
        if not self.how.key:
            return self.how.step.format(acc=f"{self.name}[j]", x=x)
        name, key = f"key{self.position}", f"{self.op}_key_{self.how.register}({x})"
        step = plain_step(self.op).format(acc=f"{self.name}[j]", x=name)
        return f"const {self.how.key} {name} = {key}; {step}"

    def fold(self, target: str) -> Iterator[str]:
        """Write C that folds halves of the lanes into each other until few are left, and these into ``target``."""
        step = plain_step(self.op) if self.how.key else self.how.step
        half, helper = self.width // 2, f"fold_{self.op}_{self.how.key or self.how.register}"
        least = FOLDED if helper in FOLDS else 1
        while half >= least:
            both = step.format(acc=f"{self.name}[j]", x=f"{self.name}[j + {half}]")
            yield f"for (int64_t j = 0; j < {half}; j++) {both}"
            half //= 2
        rest = f"{helper}({self.name})" if helper in FOLDS else f"{self.name}[0]"
        if self.how.key:
            yield f"{target} = key_value_{self.how.register}({rest});"
        else:
            yield self.how.step.format(acc=target, x=rest)


def width(kernel: Kernel, computed: Iterable[int], reduces: Iterable[int]) -> int | None:
    """Return the number of lanes for a pass with ``computed`` and ``reduces``; None if lanes do not pay."""
    size = kernel.inner[-1].extent.as_int() or 0
    values = [kernel.values[k] for k in computed]
    ops = [kernel.reduction(k).op for k in reduces]
    if not ops or any(op.startswith("arg") for op in ops):
        return None
    if any(isinstance(v, Scan) for v in values):
        return None
    least = VECTOR // min((_bytes(kernel, v.buffer) for v in values if isinstance(v, Load)), default=4)
    return next((w for w in WIDTHS if w >= least and size and size % w == 0), None)


def _bytes(kernel: Kernel, buffer: str) -> int:
    """Return the bytes of an element of ``buffer``."""
    return next(int(ref.dtype.itemsize) for ref in kernel.buffers if ref.name == buffer)
