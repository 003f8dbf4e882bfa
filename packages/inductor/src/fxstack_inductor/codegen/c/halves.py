"""Convert half precision around a vector loop: into arrays of floats before the loop, from arrays of floats after it.

Processors convert sixteen halves in one instruction, but GCC cannot vectorise to it (``f16_load`` and
``f16_store`` are a dozen integer instructions each); ``read_f16`` and ``write_f16`` of ``prelude.h`` use the
instruction. A loop that mixes 16-bit loads and 32-bit arithmetic must split and join vectors; with the
arrays, the loop between uses floats alone.
"""

from __future__ import annotations

from collections.abc import Container, Iterator, Sequence
from dataclasses import dataclass

import torch

from fxstack_inductor.codegen.c.ops import STORAGE
from fxstack_inductor.codegen.c.text import Names
from fxstack_inductor.codegen.index_text import c_index
from fxstack_inductor.ir.expr import ZERO, Expr, Var
from fxstack_inductor.ir.kernel import Compute, Load, Store, index_operands, operands
from fxstack_inductor.ir.scalar_ops import EXPENSIVE

RUN = 512
"""Elements of an array if the loop has no static bound: few enough to stay in the first-level cache."""
MIN_LOOP_POINTS = 8
"""Shorter loops convert their elements one by one."""


@dataclass(frozen=True, slots=True)
class Halves:
    """The conversions around a loop over ``var``: half-precision loads (by position in the kernel) and stores."""

    var: Var
    loads: dict[int, Load]
    stores: list[Store]
    """Stores whose results become halves after the loop."""

    def __bool__(self) -> bool:
        return bool(self.loads or self.stores)

    def enter(self, names: Names, first: str, count: str, most: str) -> Iterator[str]:
        """Declare arrays of ``most`` elements; fill the arrays of loads with ``count`` points from ``first``."""
        for k, load in self.loads.items():
            source = names.staged.get(k) or self._place(names, load.buffer, load.index, first)
            if k in names.staged and names.staged_at != "j":
                source += f" + {first}"
            yield f"float half{k}[{most}] __attribute__((aligned(64)));"
            yield f"read_{STORAGE[names.dtypes[load.buffer]]}(half{k}, {source}, {count});"
            names.floats[k] = f"half{k}"
        for n, store in enumerate(self.stores):
            yield f"float result{n}[{most}] __attribute__((aligned(64)));"
            names.results[store] = f"result{n}"

    def leave(self, names: Names, first: str, count: str) -> Iterator[str]:
        """Store the results; after the loop, loads and stores convert one by one again."""
        for n, store in enumerate(self.stores):
            target = names.targets.get(store) or self._place(names, store.buffer, store.index, first)
            yield f"write_{STORAGE[names.dtypes[store.buffer]]}({target}, result{n}, {count});"
            del names.results[store]
        for k in self.loads:
            del names.floats[k]

    def _place(self, names: Names, buffer: str, index: Expr, first: str) -> str:
        """Return the C address of the first element that the loop reads or writes, at point ``first``."""
        start = index.subs({self.var: ZERO})
        return f"{names.buffers[buffer]} + {c_index(start)} + {first}"


def halves(
    names: Names, var: Var, computed: Sequence[int], stores: Sequence[Store], outside: Container[int]
) -> Halves:
    """Return the half-precision loads and stores that are contiguous in a loop over ``var``.

    ``computed``: the loop's values; ``outside``: values that the loop does not change, which addresses may
    use.
    """
    extent = None if var.extent is None else var.extent.as_int()
    if extent is not None and extent < MIN_LOOP_POINTS:
        return Halves(var, {}, [])
    values = names.kernel.values
    inside = [values[k] for k in computed]
    heavy = any(isinstance(v, Compute) and v.op in EXPENSIVE for v in inside)
    dtypes = {torch.float16, torch.bfloat16} if heavy else {torch.float16}

    def fits(access: Load | Store, *, turned: bool = False) -> bool:
        beside = turned or _beside(access.index, var, outside)
        return beside and names.dtypes[access.buffer] in dtypes

    exclusive = [s for s in stores if _apart(names, s) and not names.copied(s)]
    copied = {s.value for s in stores if names.copied(s)}
    read = {a for k in computed for a in operands(values[k])}.union(s.value for s in exclusive)
    loads = {k: v for k in computed if isinstance(v := values[k], Load) and v.mask is None}
    loads = {k: v for k, v in loads.items() if k in read or k not in copied}
    converted = {k: v for k, v in loads.items() if fits(v, turned=k in names.staged)}
    return Halves(var, converted, [s for s in exclusive if fits(s, turned=s in names.targets)])


def _apart(names: Names, store: Store) -> bool:
    """Whether no other store of the kernel touches the buffer: conversions may then write its elements later."""
    ops = [other.op for other in names.kernel.stores if other.buffer == store.buffer]
    return not any(ops) or ops == ["set"]


def _beside(index: Expr, var: Var, outside: Container[int]) -> bool:
    """Whether neighbouring points of the loop over ``var`` address neighbouring elements."""
    step = index.coefficient(var)
    if step is None or step.as_int() != 1:
        return False
    return all(k in outside for k in index_operands(index))
