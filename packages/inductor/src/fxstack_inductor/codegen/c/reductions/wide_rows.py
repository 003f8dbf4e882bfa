"""Reduce across memory over few columns: many neighbouring rows at once are one long row, whose lanes fold to columns at the end.

A vector loop over few columns has a rest in each row, or is no vector at all. Rows that follow each other in memory without gaps
are one row of as many elements. What differs from column to column is repeated once, before the rows; what differs from row to
row is spread over the columns, for each block of rows.
"""

from __future__ import annotations

from collections.abc import Callable, Container, Iterable
from dataclasses import dataclass

import torch

from fxstack_inductor.codegen.c.halves import VECTOR, Halves, halves
from fxstack_inductor.codegen.c.ops import REGISTER
from fxstack_inductor.codegen.c.ranges import for_head
from fxstack_inductor.codegen.c.reductions.columns import BLOCK_ROWS, ColumnWriter
from fxstack_inductor.ir.analysis import Analysis, analyse
from fxstack_inductor.ir.expr import Expr
from fxstack_inductor.ir.kernel import (
    Compute,
    Kernel,
    Load,
    Loop,
    Reduce,
    Store,
    index_operands,
    index_variables,
    operands,
)
from fxstack_inductor.ir.scalar_ops import EXPENSIVE

MOST_BYTES = 128
"""Rows of this size, in registers, have two whole vectors beside a rest."""
WORD = 4
"""Bytes of the elements in registers, at least: bytes and halves are converted to words."""
POINTS = 512
"""The elements of a long row, but for its last few short rows: the arrays of several values stay in the first-level cache."""
MANY_ROWS, FEW_ROWS = 64, 8
"""Fewer rows than these do not pay for the fold; the second number is that of slow functions."""
PADDING = 8
"""A value of a row is spread over a multiple of so many columns; the next row overwrites what is too much."""


@dataclass(frozen=True, slots=True)
class WideRows:
    """Blocks of ``rows`` points of the last inner loop, each of ``columns`` neighbours."""

    columns: int
    rows: int
    by_column: frozenset[int]
    """The values that differ from column to column, and results of reductions."""
    by_row: frozenset[int]
    """The values that differ from row to row."""

    @property
    def points(self) -> int:
        """The elements of a long row."""
        return self.columns * self.rows

    @property
    def lanes(self) -> int:
        """The points of the whole vectors of a long row."""
        return -(-self.points // VECTOR) * VECTOR


def wide_rows(kernel: Kernel) -> WideRows | None:
    """Return the plan of a kernel across memory with few columns; None for other kernels."""
    if not kernel.outer or not kernel.inner or kernel.ordered:
        return None
    columns, count = kernel.outer[-1].extent.as_int(), kernel.inner[-1].extent.as_int()
    size = max((ref.dtype.itemsize for ref in kernel.buffers), default=WORD)
    if columns is None or columns < 2 or columns % VECTOR == 0 or columns * max(size, WORD) >= MOST_BYTES:
        return None
    slow = any(isinstance(v, Compute) and v.op in EXPENSIVE for v in kernel.values)
    folds = any(isinstance(v, Reduce) for v in kernel.values)
    if count is not None and count < (FEW_ROWS if (slow or not folds) and size <= WORD else MANY_ROWS):
        return None
    most = max(VECTOR, POINTS // columns // VECTOR * VECTOR)
    rows = most if count is None else min(most, count)
    by_column = _differing(kernel, kernel.outer[-1], reduced=True)
    plan = WideRows(columns, rows, by_column, _differing(kernel, kernel.inner[-1], reduced=False))
    return plan if _fits(kernel, plan) else None


def _differing(kernel: Kernel, loop: Loop, *, reduced: bool) -> frozenset[int]:
    """Return the values that differ from point to point of ``loop``; ``reduced``: whether results of reductions do."""
    found: set[int] = set()
    for k, value in enumerate(kernel.values):
        differs = loop.var in index_variables(value) or found.intersection(operands(value))
        if reduced if isinstance(value, Reduce) else differs:
            found.add(k)
    return frozenset(found)


def _fits(kernel: Kernel, plan: WideRows) -> bool:
    """Whether each access is to neighbours in a long row, or is the same in all rows, or in all columns."""
    facts = analyse(kernel)
    stored = [s for s in kernel.stores if facts.store_inner(s)]
    if not kernel.repeatable or not all(_step(kernel, s.index) for s in stored):
        return False
    # A copy reads its operand as it lies in memory, not what a long row holds in its place.
    copies = [kernel.values[s.value] for s in stored if s in kernel.copied]
    if any(isinstance(load, Load) and _step(kernel, load.index) != 1 for load in copies):
        return False
    for k, value in enumerate(kernel.values):
        if isinstance(value, Reduce) and value.dtype is torch.bool:
            return False
        if k not in plan.by_column or not facts.inner[k]:
            if isinstance(value, Load) and value.dtype is torch.bool:
                return False
            continue
        plain = isinstance(value, Load) and value.mask is None and _step(kernel, value.index) == 1
        if not plain and not (isinstance(value, Compute) and k in plan.by_row):
            return False
    return True


def _step(kernel: Kernel, index: Expr) -> int:
    """Return the step between the columns of a row, if that between a row's last column and the next row is equal; else 0."""
    steps = [index.coefficient(loop.var) for loop in (kernel.outer[-1], kernel.inner[-1])]
    column, row = (None if step is None else step.as_int() for step in steps)
    even = column is not None and row == column * (kernel.outer[-1].extent.as_int() or 0)
    return column if column and even and not index_operands(index) else 0


def sources(
    facts: Analysis, roots: Iterable[int], holds: Callable[[int], bool], known: Container[int]
) -> list[int]:
    """Return the values that arrays hold, of those that ``roots`` need: the last that ``holds`` accepts, but for booleans.

    What ``known`` values are computed from is left out.
    """
    found, seen = set[int](), set[int]()
    waiting = list(roots)
    while waiting:
        k = waiting.pop()
        if k in seen:
            continue
        seen.add(k)
        value = facts.kernel.values[k]
        if holds(k) and (value.dtype is not torch.bool or isinstance(value, Load)):
            found.add(k)
        elif k not in known and not isinstance(value, Reduce):
            waiting += operands(value)
    return sorted(found)


class WideColumnWriter(ColumnWriter):
    """Writes the body of one function that reduces across memory over few columns."""

    ALL_COLUMNS = True
    BEYOND = VECTOR - 1

    def __init__(self, kernel: Kernel, grain: int) -> None:
        super().__init__(kernel, grain)
        plan = wide_rows(kernel)
        assert plan is not None
        self.plan = plan

    def _keep_vectors(self, column: Loop, reduces: list[int], stores: list[Store]) -> None:
        """Write what differs from column to column to arrays, and repeat it for each row of a block."""
        self.most = self.plan.lanes
        outer = self.facts.outer & self.plan.by_column
        roots = self.facts.roots(reduces, stores)
        found = sources(self.facts, roots, outer.__contains__, self.ready)
        found = [k for k in found if k not in self.vectors]
        if not found:
            return
        for k in found:
            self.out.line(f"{REGISTER[self.kernel.values[k].dtype]} repeated{k}[{self.plan.lanes}];")
        with self._over_columns(column, found, []):
            self.out.write_lines(f"repeated{k}[j] = v{k};" for k in found)
        size = self.plan.columns
        with self.out.block(for_head("j", str(size), str(self.plan.points), str(size))):
            self.out.write_lines(
                f"__builtin_memcpy(repeated{k} + j, repeated{k}, sizeof(*repeated{k}) * {size});"
                for k in found
            )
        self.vectors.update({k: f"repeated{k}" for k in found})
        self.names.finished.update(found)

    def _few_rows(self, column: Loop, reduces: list[int], stores: list[Store]) -> None:
        self._column_blocks(column, reduces, stores, BLOCK_ROWS)

    def _column_blocks(self, column: Loop, reduces: list[int], stores: list[Store], most: int) -> None:
        """Write blocks of rows of which each lane has as many as a column has in other kernels."""
        times = self.plan.rows if len(self.kernel.inner) == 1 else 1
        super()._column_blocks(column, reduces, stores, most * times)

    def _begin_block(self, reduces: list[int]) -> None:
        for k in reduces:
            identity = self._accumulator(k).identity
            self.out.line(f"for (int64_t j = 0; j < {self.plan.lanes}; j++) part{k}[j] = {identity};")

    def _end_block(self, reduces: list[int]) -> None:
        """Take the lanes of all rows into the results of their columns."""
        size = self.plan.columns
        for k in reduces:
            step = self._accumulator(k).step.format(acc=f"sum{k}[j]", x=f"part{k}[i + j]")
            self.out.line(for_head("i", "0", str(self.plan.points), str(size)))
            self.out.line(f"  for (int64_t j = 0; j < {size}; j++) {step}")

    def _rows(
        self, span: tuple[str, str], column: Loop, reduces: list[int], stores: list[Store], target: str
    ) -> None:
        """Write the last inner loop over ``span`` as long rows."""
        row, plan = self.kernel.inner[-1], self.plan
        roots, known = self.facts.roots(reduces, stores), self.vectors
        self.vectors = dict(known)
        with self.out.block(for_head("from", *span, str(plan.rows))):
            self.out.line(f"const int64_t count = min_int64_t({span[1]} - from, {plan.rows});")
            before = self._before_rows(row, roots)
            self.out.line(f"const int64_t {row.var.name} = from, elements = count * {plan.columns};")
            self._long_row(column, roots, stores, before, [(k, f"{target}{k}[j]") for k in reduces])
        self.vectors = known

    def _long_row(
        self,
        column: Loop,
        roots: list[int],
        stores: list[Store],
        before: frozenset[int],
        steps: list[tuple[int, str]],
    ) -> None:
        """Write the vector loop over a long row; ``steps``: each reduction and the element of its partial result."""
        computed = self._per_column(roots, before)
        fresh = [k for k in computed if k not in self.ready and k not in self.vectors]
        points, self.names.rows = self.plan.points, self.vectors
        conversions = halves(self.names, column.var, fresh, stores, before, points=points, chunk=points)
        whole = not steps or self.kernel.inner[-1].extent.as_int() == self.plan.rows
        padded = whole and self._in_arrays(conversions, computed, stores)
        stop = "lanes" if padded else "elements"
        with self._converted(conversions, "tile", "elements", str(self.plan.lanes), padded=padded):
            if padded:
                self.out.line(f"const int64_t lanes = (elements + {VECTOR - 1}) / {VECTOR} * {VECTOR};")
            self.out.line(self._simd(computed))
            with self.out.block(for_head("j", "0", stop)):
                self.out.line(f"const int64_t {column.var.name} = tile + j;")
                self._column_values(computed)
                self.out.write_lines(self._step(k, element) for k, element in steps)
                self._stores(stores)

    def _in_arrays(self, conversions: Halves, computed: list[int], stores: list[Store]) -> bool:
        """Whether arrays on the stack hold all elements of a long row, which then goes on up to whole vectors.

        No column has the lanes beyond the rows of a whole block; partial results there are lost.
        """
        held = self.ready.isdisjoint(computed) and len(conversions.held) == len(stores)
        arrays = {*conversions.loads, *self.vectors}
        others = (k for k in computed if k not in arrays)
        return held and not any(isinstance(self.kernel.values[k], Load) for k in others)

    def _before_rows(self, row: Loop, roots: list[int]) -> frozenset[int]:
        """Write what is equal in all columns: values of all rows, and of each row, spread over its columns."""
        by_row, by_column = self.plan.by_row, self.plan.by_column
        self.names.rows = {}  # the arrays are over columns, the loop below is over rows
        needed = self.facts.needed(roots, stop=self.ready.union(self.vectors))
        equal = [k for k in needed if k not in by_column and k not in by_row]
        self._values(equal)
        spread = sources(self.facts, roots, (by_row - by_column).__contains__, self.ready)
        if not spread:
            return frozenset(equal)
        values = [k for k in self.facts.needed(spread, stop=frozenset(equal)) if k not in equal]
        kinds = {k: REGISTER[self.kernel.values[k].dtype] for k in spread}
        self.out.write_lines(f"{kind} row{k}[{self.plan.rows}];" for k, kind in kinds.items())
        conversions = halves(self.names, row.var, values, [], frozenset(equal))
        with self._converted(conversions, "from", "count", str(self.plan.rows)):
            self.out.line(self._simd(values))
            with self.out.block(for_head("j", "0", "count")):
                self.out.line(f"const int64_t {row.var.name} = from + j;")
                self._values(values)
                self.out.write_lines(f"row{k}[j] = v{k};" for k in spread)
        self._spread(kinds)
        return frozenset(equal)

    def _spread(self, kinds: dict[int, str]) -> None:
        """Write each value of a row to all of its columns."""
        size, most = self.plan.columns, -(-self.plan.columns // PADDING) * PADDING
        self.out.write_lines(f"{kind} spread{k}[{self.plan.lanes + PADDING}];" for k, kind in kinds.items())
        with self.out.block(for_head("i", "0", "count")):
            self.out.write_lines(
                f"for (int64_t j = 0; j < {most}; j++) spread{k}[i * {size} + j] = row{k}[i];" for k in kinds
            )
        self.vectors.update({k: f"spread{k}" for k in kinds})
        self.names.finished.update(kinds)
