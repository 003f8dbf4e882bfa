"""Compute slow functions of a few rows behind all of these, where conditions choose what they are functions of.

The parts of a row at a border, of one or two points, are no vectors, and a slow function of one point takes as long as of
sixteen. The values that the functions take are in arrays on the stack, which are buffers of two kernels. The second kernel goes
over all rows as one.
"""

from __future__ import annotations

from collections.abc import Container, Iterable
from dataclasses import replace

import torch

from fxstack_inductor.codegen.c.pointwise.row_values import with_arrays
from fxstack_inductor.ir.analysis import analyse
from fxstack_inductor.ir.bounds import VarKind
from fxstack_inductor.ir.expr import ZERO, Expr, Var, integer, of_atom
from fxstack_inductor.ir.kernel import (
    Compute,
    Constant,
    IndexValue,
    Kernel,
    Load,
    Loop,
    Store,
    Value,
    index_operands,
    operands,
)
from fxstack_inductor.ir.scalar_ops import EXPENSIVE
from fxstack_inductor.schedule.condition_splits import segments
from fxstack_inductor.schedule.loops import VECTOR

MOST_ARRAYS = 4
"""More values than this before the functions take more stores and loads than the functions of border points save."""
MOST_POINTS = 4096
"""The points of all rows: arrays of them stay in the first-level cache."""


def phases(kernel: Kernel) -> tuple[Kernel, Kernel] | None:
    """Return the kernels of the values before slow functions, in the last two loops, and of all others, in one loop.

    None for kernels that have no slow functions, no short parts of a row, or more per row than the functions take.
    """
    if len(kernel.outer) < 2 or not kernel.repeatable:
        return None
    *_, row, last = kernel.outer
    rows, size = row.extent.as_int() or 0, last.extent.as_int() or 0
    sizes = [part.outer[-1].extent.as_int() or 0 for part in segments(kernel)]
    if len(sizes) < 2 or min(sizes) >= VECTOR or not 0 < rows * size <= MOST_POINTS:
        return None
    roots = {k for store in kernel.stores for k in (store.value, *index_operands(store.index))}
    late = _late(kernel, roots)
    used = {a for k in late for a in operands(kernel.values[k])} | {store.value for store in kernel.stores}
    kept = sorted(k for k in used - late if not _is_plain(kernel.values[k], used - late))
    if not late or not 0 < len(kept) <= MOST_ARRAYS or torch.bool in {kernel.values[k].dtype for k in kept}:
        return None
    points = integer(rows * size)
    all_rows = Loop(Var(last.var.name, VarKind.LOOP, points), points)
    place = of_atom(row.var) * size + of_atom(last.var)
    stores = tuple(Store(f"row{k}", place, k) for k in kept)
    after = with_arrays(kernel, kept, place, points)
    needed = set(analyse(after).needed(roots))
    values = [v if k in needed else Constant("0", torch.int64) for k, v in enumerate(after.values)]
    moved = _as_one_row(replace(after, values=tuple(values)), row, last, all_rows)
    return None if moved is None else (replace(kernel, stores=stores, buffers=after.buffers), moved)


def _late(kernel: Kernel, roots: Iterable[int]) -> set[int]:
    """Return the slow functions among the values that ``roots`` need, and what is computed from these."""
    late = set[int]()
    for k in analyse(kernel).needed(roots):
        value = kernel.values[k]
        slow = isinstance(value, Compute) and value.op in EXPENSIVE
        if slow or not late.isdisjoint(operands(value)):
            late.add(k)
    return late


def _is_plain(value: Value, kept: Container[int]) -> bool:
    """Whether a value is read or written out where it is used, or computed from the values ``kept``."""
    if isinstance(value, Load):
        return value.mask is None and not operands(value)
    return isinstance(value, Constant) or (
        isinstance(value, Compute) and all(a in kept for a in operands(value))
    )


def _as_one_row(kernel: Kernel, row: Loop, last: Loop, all_rows: Loop) -> Kernel | None:
    """Return ``kernel`` with one loop in place of ``row`` and ``last``; None if these are no neighbours in all accesses."""
    size = last.extent.as_int() or 0

    def moved(index: Expr) -> Expr | None:
        step, beyond = index.coefficient(last.var), index.coefficient(row.var)
        if step is None or beyond != step * size or index_operands(index):
            return None
        return index.subs({row.var: ZERO, last.var: of_atom(all_rows.var)})

    if any(isinstance(v, IndexValue) or (isinstance(v, Load) and v.mask is not None) for v in kernel.values):
        return None
    places = [
        access.index for access in (*kernel.values, *kernel.stores) if isinstance(access, (Load, Store))
    ]
    found = {place: index for place in places if (index := moved(place)) is not None}
    if not found.keys() >= set(places):
        return None
    values = [replace(v, index=found[v.index]) if isinstance(v, Load) else v for v in kernel.values]
    stores = [replace(store, index=found[store.index]) for store in kernel.stores]
    return replace(kernel, outer=(*kernel.outer[:-2], all_rows), values=tuple(values), stores=tuple(stores))
