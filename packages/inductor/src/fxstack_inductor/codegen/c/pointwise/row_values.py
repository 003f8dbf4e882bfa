"""Choose the values that every row of points has in common, such as places read from memory.

They are computed once, into arrays on the stack that are buffers of the kernel from then on.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import torch

from fxstack_inductor.codegen.c.text import STACK
from fxstack_inductor.ir.analysis import analyse
from fxstack_inductor.ir.expr import Expr, of_atom, product
from fxstack_inductor.ir.kernel import (
    BufferRef,
    Check,
    Compute,
    Kernel,
    Load,
    Reduce,
    Scan,
    Value,
    index_operands,
    index_variables,
    operands,
)
from fxstack_inductor.ir.scalar_ops import EXPENSIVE

MOST_POINTS = 2048
"""Points of a row: an array of them stays in the first-level cache beside the rows. Places may go on to the second."""
LEAST_ROWS = 8


def row_values(kernel: Kernel) -> list[int]:
    """Return the positions of the values worth an array: slow to compute, different along a row, and equal in all rows."""
    loops = (*kernel.outer, *kernel.inner)
    if len(loops) < 2 or len(kernel.inner) > 1:
        return []
    *rows, last = loops
    count, size = product(loop.extent for loop in rows).as_int() or 0, last.extent.as_int() or 0
    if count < LEAST_ROWS:
        return []
    others = {loop.var for loop in rows}
    equal, slow = set[int](), set[int]()
    for k, value in enumerate(kernel.values):
        if not others.isdisjoint(index_variables(value)) or not equal.issuperset(operands(value)):
            continue
        if isinstance(value, (Reduce, Scan)) or (isinstance(value, Load) and value.buffer in kernel.written):
            continue
        equal.add(k)
        far = isinstance(value, Check) or (isinstance(value, Load) and bool(operands(value)))
        if (
            far
            or (isinstance(value, Compute) and value.op in EXPENSIVE)
            or slow.intersection(operands(value))
        ):
            slow.add(k)
    roots = {k for s in kernel.stores for k in (s.value, *index_operands(s.index))}
    apart = (k for k in analyse(kernel).needed(roots) if k not in equal)
    used = roots.union(*(operands(kernel.values[k]) for k in apart))
    found = slow & used & analyse(kernel).varying(last)
    kept, free = [], STACK
    for k in sorted(k for k in found if kernel.values[k].dtype is not torch.bool):
        if size <= MOST_POINTS or _is_small(kernel.values[k]):
            free -= array_dtype(kernel.values[k]).itemsize * size
            kept += [k] if free >= 0 else []
    return kept


def array_dtype(value: Value) -> torch.dtype:
    """Return the type of the elements of an array of ``value``: checked places have 32 bits if these are enough."""
    return torch.int32 if _is_small(value) else value.dtype


def _is_small(value: Value) -> bool:
    size = value.size.as_int() if isinstance(value, Check) else None
    return size is not None and size < 2**31


def with_arrays(
    kernel: Kernel, found: Sequence[int], place: Expr | None = None, points: Expr | None = None
) -> Kernel:
    """Return ``kernel`` with a load from a new buffer of ``points`` elements in place of each value ``found``.

    ``place`` is the element of a point. By default, the buffers go over the last loop.
    """
    last, values = (kernel.inner or kernel.outer)[-1], list(kernel.values)
    refs = []
    for k in found:
        refs.append(BufferRef(f"row{k}", array_dtype(values[k]), points or last.extent))
        values[k] = Load(f"row{k}", place or of_atom(last.var), values[k].dtype)
    return replace(kernel, values=tuple(values), buffers=(*kernel.buffers, *refs))
