"""Write independent points of short rows as long rows: the rows of a block follow each other in memory without gaps.

A loop over few columns has a rest in each row, or is no vector loop at all (``reductions/wide_rows.py``, which writes the
long rows).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import torch

from fxstack_inductor.codegen.c.ops import HALVES
from fxstack_inductor.codegen.c.ranges import Range, ranges
from fxstack_inductor.codegen.c.reductions.saved import SLOW
from fxstack_inductor.codegen.c.reductions.wide_rows import WORD, WideColumnWriter, WideRows, wide_rows
from fxstack_inductor.codegen.c.sharing import VECTOR_FUNCTIONS, share
from fxstack_inductor.codegen.index_text import c_index
from fxstack_inductor.ir.expr import integer
from fxstack_inductor.ir.kernel import Check, Compute, Kernel, Loop, index_variables, once_per_kernel
from fxstack_inductor.ir.scalar_ops import EXPENSIVE

MANY_COLUMNS, FEW_COLUMNS = 24, 8
"""From so many columns on, GCC makes vectors of booleans, or of divisions, along short rows."""


@once_per_kernel
def wide_points(kernel: Kernel) -> Kernel | None:
    """Return a kernel of points with its rows as inner loop, if its last loop has few columns and long rows hold them."""
    checks = any(isinstance(v, Check) for v in kernel.values)
    if kernel.inner or len(kernel.outer) < 2 or checks or kernel.scatters or not _pays(kernel):
        return None
    *others, row, column = kernel.outer
    moved = replace(kernel, outer=(*others, column), inner=(row,))
    plan = wide_rows(moved)
    return moved if plan is not None and (_shared(moved, plan) or not _differ(kernel)) else None


def _pays(kernel: Kernel) -> bool:
    """Whether long rows are faster: always with slow functions, and with halves, 1.2 to 5.8 times.

    Of plain arithmetic, GCC writes a short row as vectors (long rows are 0.6 to 0.9 times as fast), but not of booleans beside
    words and bytes (1.0 to 5.6 times), nor of divisions of fewer than eight columns (0.9 to 2.2 times).
    """
    columns, found = (
        kernel.outer[-1].extent.as_int() or 0,
        [v for v in kernel.values if isinstance(v, Compute)],
    )
    if any(v.op in EXPENSIVE for v in found):
        return True
    divisions = any(v.op in SLOW for v in found) and columns < FEW_COLUMNS
    if any(ref.dtype.itemsize > WORD for ref in kernel.buffers):
        return divisions
    booleans = any(v.dtype is torch.bool for v in found) and columns < MANY_COLUMNS
    return booleans or divisions or any(ref.dtype in HALVES for ref in kernel.buffers)


def _blocks(kernel: Kernel, plan: WideRows) -> list[Range]:
    """Return the loops over blocks of rows."""
    return [*ranges(kernel.outer[:-1]), Range("from", kernel.inner[-1], str(plan.rows), integer(plan.rows))]


def _shared(kernel: Kernel, plan: WideRows) -> bool:
    """Whether threads can share blocks of rows. Otherwise, they share the rows as of other points (``strategy.py``)."""
    return share(kernel, _blocks(kernel, plan), kernel.stores) is not None


def _differ(kernel: Kernel) -> bool:
    """Whether the result of a function of a vector may differ from that of a scalar: threads would change results."""
    return any(isinstance(v, Compute) and v.op in VECTOR_FUNCTIONS - {"exp"} for v in kernel.values)


class WidePointsWriter(WideColumnWriter):
    """Writes the body of one function of points, for which ``wide_points`` returns a kernel."""

    def __init__(self, kernel: Kernel, grain: int) -> None:
        moved = wide_points(kernel)
        assert moved is not None
        super().__init__(moved, grain)

    def wide_points(self) -> None:
        """Write blocks of rows, which threads share."""
        *others, column = self.kernel.outer
        row, rows, stores = self.kernel.inner[-1], self.plan.rows, list(self.kernel.stores)
        roots = self.facts.roots([], stores)
        self.out.line(f"const int64_t tile = 0, width = {self.plan.columns};")
        before_all = self._are_equal_along(others)
        if before_all:
            self._keep_vectors(column, [], stores)
        self._share(_blocks(self.kernel, self.plan))
        if not before_all:
            self._keep_vectors(column, [], stores)
        self.out.line(f"const int64_t count = min_int64_t({c_index(row.extent)} - from, {rows});")
        before = self._before_rows(row, roots)
        self.out.line(f"const int64_t {row.var.name} = from, elements = count * {self.plan.columns};")
        self._long_row(column, roots, stores, before, [])
        self.out.close(len(others) + 1)

    def _are_equal_along(self, others: Sequence[Loop]) -> bool:
        """Whether the values of columns alone, and what they are computed from, are equal for all points of ``others``."""
        variables = {loop.var for loop in others}
        return all(variables.isdisjoint(index_variables(self.kernel.values[k])) for k in self.facts.outer)
