"""Let a kernel over rows compute the first sums over columns of the same elements, which it has in registers.

The gradients of a norm take sums over rows, for the input, and sums over columns, for the weight and the bias. Both read the
same large tensors. ``split_reductions`` divides the sums over columns into parts of some rows each. If a kernel over rows reads
the same tensors, a program of it computes the rows of one part one after the other and adds up the columns, so that no second
kernel reads the tensors. The kernel that reduces the parts stays.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import chain

import torch

from fxstack_inductor.ir.expr import ZERO, Expr, Var, floordiv, of_atom
from fxstack_inductor.ir.kernel import (
    Compute,
    IndexValue,
    Kernel,
    Load,
    Reduce,
    Scan,
    Store,
    Value,
    expressions,
    index_operands,
    operands,
    with_expressions,
    with_operands,
)
from fxstack_inductor.ir.nodes import HALF_DTYPES, Node
from fxstack_inductor.ir.ordered import PERSISTENT
from fxstack_inductor.ir.scalar_ops import ROUNDINGS
from fxstack_inductor.lower.reductions import split
from fxstack_inductor.schedule.side_by_side import access_of, is_barrier
from fxstack_inductor.schedule.steps import KernelStep, Step


@dataclass(frozen=True)
class _Columns:
    """The loops of a kernel of partial sums over columns: part, column, and row within the part."""

    part: Var
    column: Var
    row: Var
    size: int
    """The number of rows of a part."""

    def moved(self, index: Expr, row: Expr, column: Expr) -> Expr | None:
        """Return ``index`` for the row ``row`` of all rows; None if the rows of the parts do not follow each other."""
        of_part, of_row = index.coefficient(self.part), index.coefficient(self.row)
        if of_part is None or of_row is None or of_part != of_row * self.size:
            return None
        return index.subs({self.part: ZERO, self.row: row, self.column: column})


def sum_columns_in_rows(steps: Sequence[Step]) -> list[Step]:
    """Return the steps with partial sums over columns moved into kernels over the rows of the same elements."""
    done = list(steps)
    position = 0
    while position < len(done):
        found = next(_joined(done, position), None)
        if found is None:
            position += 1
        else:
            done = found
    return done


def _joined(steps: Sequence[Step], position: int) -> Iterator[list[Step]]:
    """Yield the steps after each possible move of sums into the kernel over rows at ``position``."""
    rows = steps[position]
    if not isinstance(rows, KernelStep) or not _is_over_rows(rows.kernel):
        return
    for other, sums in enumerate(steps):
        if not isinstance(sums, KernelStep) or sums is rows:
            continue
        columns = _columns(sums.kernel)
        if columns is None or not _same_elements(rows.kernel, sums.kernel, columns):
            continue
        target = _place(steps, position, other)
        joined = None if target is None else _join(rows, sums, columns)
        if joined is not None:
            kept = [joined if k == target else step for k, step in enumerate(steps)]
            yield [step for step in kept if step is not rows and step is not sums]


def _is_plain(kernel: Kernel) -> bool:
    """Whether a kernel is a nest of loops of known sizes without order and effects."""
    special = kernel.template or kernel.roles or kernel.parts or kernel.checked or kernel.sizes
    return not special and not any(isinstance(value, Scan) for value in kernel.values)


def _is_over_rows(kernel: Kernel) -> bool:
    """Whether a kernel reduces rows that one tile holds; sums over columns may be part of it already."""
    loops = (*kernel.outer, *kernel.inner)
    if not _is_plain(kernel) or len(kernel.outer) != 1 or len(kernel.inner) != 1:
        return False
    count = kernel.inner[0].extent.as_int()
    known = all(loop.extent.as_int() for loop in loops) and count is not None and count <= PERSISTENT
    plain = all(not store.op or kernel.rows for store in kernel.stores)
    return known and plain and any(isinstance(value, Reduce) for value in kernel.values)


def _columns(kernel: Kernel) -> _Columns | None:
    """Return the loops of ``kernel`` if it computes partial sums over columns, and else only results of each element."""
    if not _is_plain(kernel) or kernel.scatters or len(kernel.outer) != 2 or len(kernel.inner) != 1:
        return None
    (part, column), (row,) = kernel.outer, kernel.inner
    parts, count, size = (loop.extent.as_int() for loop in (part, column, row))
    # With fewer programs, one pass would take longer than two.
    if parts is None or count is None or size is None or parts < split.ROW_PROGRAMS[0]:
        return None
    reduced = {k for k, value in enumerate(kernel.values) if isinstance(value, Reduce)}
    place = of_atom(part.var) * count + of_atom(column.var)
    if not reduced or any(s.index != place for s in kernel.stores if s.value in reduced):
        return None
    if any(not reduced.isdisjoint(operands(value)) for value in kernel.values):
        return None
    sums = (kernel.reduction(k) for k in reduced)
    if any(r.op != "sum" or kernel.values[r.args[0]].dtype is not r.dtype for r in sums):
        return None
    return _Columns(part.var, column.var, row.var, size)


def _same_elements(rows: Kernel, sums: Kernel, columns: _Columns) -> bool:
    """Whether both kernels have as many rows and columns, and programs of as many rows."""
    same_rows = rows.outer[0].extent == sums.outer[0].extent * columns.size
    return same_rows and rows.inner[0].extent == sums.outer[1].extent and rows.rows in {0, columns.size}


def _place(steps: Sequence[Step], rows: int, sums: int) -> int | None:
    """Return the position at which both kernels can run as one: that of ``rows`` or of ``sums``; None: nowhere."""
    first, last = min(rows, sums), max(rows, sums)
    between = [access_of(step) for step in steps[first + 1 : last]]
    if any(map(is_barrier, steps[first + 1 : last])):
        return None
    one, other = access_of(steps[first]), access_of(steps[last])
    if first == sums and one.before(other):
        return None
    if not any(access.before(other) for access in between):
        return first
    return None if any(one.before(access) for access in between) else last


def _join(rows: KernelStep, sums: KernelStep, columns: _Columns) -> KernelStep | None:
    """Return one kernel for both steps; None if they do not read the same elements."""
    kernel, added = rows.kernel, sums.kernel
    row, column = of_atom(kernel.outer[0].var), of_atom(kernel.inner[0].var)
    values = _Values(kernel)
    places: list[int] = []
    for value in added.values:
        place = values.add(value, places, columns, row, column)
        if place is None:
            return None
        places.append(place)
    if not values.shared:
        return None
    index = floordiv(row, columns.size) * added.outer[1].extent + column
    stores = [*kernel.stores]
    for store in added.stores:
        is_sum = isinstance(added.values[store.value], Reduce)
        at = index if is_sum else columns.moved(store.index, row, column)
        if at is None or not {*row.variables, *column.variables} <= at.variables:
            return None
        stores.append(Store(store.buffer, at, places[store.value], "add" if is_sum else ""))
    buffers = {ref.name: ref for ref in (*kernel.buffers, *added.buffers)}
    joined = replace(
        kernel,
        values=tuple(values.values),
        stores=tuple(stores),
        buffers=tuple(buffers.values()),
        origins=tuple(dict.fromkeys((*kernel.origins, *added.origins))),
        comments=tuple(dict.fromkeys((*kernel.comments, *added.comments))),
        rows=columns.size,
    )
    own = {node.name for node in rows.stored}
    reads: dict[Node, None] = dict.fromkeys(n for n in chain(rows.reads, sums.reads) if n.name not in own)
    return KernelStep(joined, (*rows.stored, *sums.stored), tuple(reads))


class _Values:
    """The values of a kernel over rows, to which those of sums over columns are added; equal values are one."""

    def __init__(self, kernel: Kernel) -> None:
        self._kernel = kernel
        self._dtypes = {ref.name: ref.dtype for ref in kernel.buffers}
        self.values = [*kernel.values]
        self._places = {value: k for k, value in reversed([*enumerate(self.values)])}
        self.shared = False
        """Whether an element of every row and column is read once in place of twice."""

    def add(
        self, value: Value, places: Sequence[int], columns: _Columns, row: Expr, column: Expr
    ) -> int | None:
        """Return the position of ``value``, whose operands have the positions ``places``; None: it cannot be moved."""
        if isinstance(value, Reduce):
            return places[value.args[0]]
        if any(index_operands(expr) for expr in expressions(value)):
            return None  # an address that is computed
        indices = [columns.moved(expr, row, column) for expr in expressions(value)]
        if any(index is None for index in indices):
            return None
        if isinstance(value, (Load, IndexValue)):
            value = with_expressions(value, lambda _: indices[0] or ZERO)
        value = with_operands(value, places)
        if isinstance(value, Load):
            if value.buffer in self._kernel.written:
                return self._stored(value, row, column)
            both = {*row.variables, *column.variables} <= value.index.variables
            self.shared = self.shared or (value in self._places and both)
        return self._put(value)

    def _put(self, value: Value) -> int:
        if value not in self._places:
            self._places[value] = len(self.values)
            self.values.append(value)
        return self._places[value]

    def _stored(self, load: Load, row: Expr, column: Expr) -> int | None:
        """Return the position of the value that the kernel stores where ``load`` reads; None if that is not known."""
        found = [s for s in self._kernel.stores if (s.buffer, s.index, s.op) == (load.buffer, load.index, "")]
        if len(found) != 1 or load.mask is not None:
            return None
        place, dtype = found[0].value, self._dtypes[load.buffer]
        self.shared = self.shared or {*row.variables, *column.variables} <= load.index.variables
        value = self.values[place]
        if dtype in HALF_DTYPES and value.dtype is torch.float32:
            rounded = isinstance(value, Compute) and value.op == ROUNDINGS[dtype]
            return place if rounded else self._put(Compute(ROUNDINGS[dtype], (place,), torch.float32))
        return place if value.dtype is dtype else None
