"""Find the positions of extremes in the pass that finds the extremes, in place of a second pass.

A position is lowered as the smallest of those whose element equals the extreme or is NaN (``lower.reductions``). Across memory,
a vector of extremes and a vector of their positions take in a row at once; each element is read and computed once.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

import torch

from fxstack_inductor.codegen.c.reductions.variance import without_unused
from fxstack_inductor.ir.expr import ZERO, Expr, of_atom
from fxstack_inductor.ir.kernel import Compute, Constant, IndexValue, Kernel, Reduce, Value


def with_positions(kernel: Kernel) -> Kernel:
    """Return ``kernel`` with ``argmax`` and ``argmin`` in place of the smallest positions of extremes."""
    found = dict(_positions(kernel))
    if not found:
        return kernel
    values = tuple(found.get(k, value) for k, value in enumerate(kernel.values))
    return without_unused(replace(kernel, values=values))


def _positions(kernel: Kernel) -> Iterator[tuple[int, Reduce]]:
    """Yield the reductions whose results are positions of extremes, and what takes their places."""
    place: dict[Value | None, int] = {value: k for k, value in enumerate(kernel.values)}

    def compute(op: str, *args: int | None, dtype: torch.dtype = torch.bool) -> int | None:
        taken = tuple(k for k in args if k is not None)
        return place.get(Compute(op, taken, dtype)) if len(taken) == len(args) else None

    extremes = [
        (k, v) for k, v in enumerate(kernel.values) if isinstance(v, Reduce) and v.op in {"max", "min"}
    ]
    for top, (x,), op, dtype in (
        (k, v.args, v.op, v.dtype) for k, v in extremes if v.dtype is not torch.bool
    ):
        found = compute("eq", x, top)
        if dtype.is_floating_point:
            found = compute("bitwise_or", found, compute("ne", x, x))
        for kind in (torch.int32, torch.int64):
            at = place.get(IndexValue(_in_order(kernel), kind))
            beyond = place.get(Constant(str(torch.iinfo(kind).max), kind))
            chosen = compute("where", found, at, beyond, dtype=kind)
            least = None if chosen is None else place.get(Reduce("min", (chosen,), kind))
            if least is not None and at is not None:
                yield least, Reduce(f"arg{op}", (x, at), kind)


def _in_order(kernel: Kernel) -> Expr:
    """Return the number of inner points before a point, in the order of the loops."""
    total = ZERO
    for loop in kernel.inner:
        total = total * loop.extent + of_atom(loop.var)
    return total
