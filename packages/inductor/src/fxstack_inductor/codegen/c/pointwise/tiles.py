"""Write points whose memory lies across the vector loop: in tiles, with transposed copies on the stack.

A transposition without tiles reads a whole cache line for each element of a vector along the other dimension.
With tiles, each line is read once: blocks of the crossing tensors are transposed into stack arrays, which the
vector loop reads along memory.
"""

from __future__ import annotations

from collections import Counter

from fxstack_inductor.codegen.c.halves import halves
from fxstack_inductor.codegen.c.pointwise.points import PointsWriter
from fxstack_inductor.codegen.c.ranges import Range, ranges
from fxstack_inductor.codegen.index_text import c_index
from fxstack_inductor.ir.expr import ZERO, Expr, Var, integer
from fxstack_inductor.ir.kernel import Kernel, Load, Loop, operands
from fxstack_inductor.schedule.condition_splits import invariant_condition, segments

SIDE = 64
"""Rows and columns of a tile: enough for the prefetcher; with 4-byte elements, half a first-level cache."""
SMALL_SIDE = 32
"""Rows and columns of a tile if several tensors are transposed."""
MIN_LOOP_POINTS = 8
"""Shorter loops are not worth a transposition."""
MAX_TRANSPOSED = 8
"""The largest number of transposed tensors; others are read in place."""


def crossing(kernel: Kernel) -> Var | None:
    """Return the loop along which most loads that cross the last loop are contiguous; None without any."""
    if len(kernel.outer) < 2 or kernel.inner:
        return None
    last = kernel.outer[-1].var
    votes: Counter[Var] = Counter()
    for value in kernel.values:
        if isinstance(value, Load) and value.mask is None:
            votes.update(v for v in _along(value.index, kernel) if _across(value.index, last))
    if not votes:
        return None
    chosen = votes.most_common(1)[0][0]
    return chosen if _long(chosen) and _long(last) else None


def _long(var: Var) -> bool:
    """Whether a loop is worth a transposition; one of unknown length is."""
    extent = None if var.extent is None else var.extent.as_int()
    return extent is None or extent >= MIN_LOOP_POINTS


def _side(loop: Loop, most: int) -> int:
    """Return the extent of a tile along ``loop``: at most ``most``."""
    extent = loop.extent.as_int()
    return most if extent is None else min(extent, most)


def _along(index: Expr, kernel: Kernel) -> list[Var]:
    """Return the outer loops, except the last, along which ``index`` is contiguous."""
    return [loop.var for loop in kernel.outer[:-1] if index.coefficient(loop.var) == 1]


def _across(index: Expr, last: Var) -> bool:
    """Whether ``index`` jumps from point to point of the last loop."""
    step = index.coefficient(last)
    return step is not None and step.as_int() not in {0, 1}


def crosses(kernel: Kernel) -> bool:
    """Whether loads cross the last loop, or a part of it between two changes of a condition."""
    return any(crossing(part) is not None for part in segments(kernel))


class TileWriter(PointsWriter):
    """Writes the body of one tiled function."""

    def tiles(self) -> None:
        """Write the tiles of each part of the last loop; a part without crossing loads needs none."""
        parts = segments(self.kernel)
        if len(parts) == 1:
            self.tiled()
        else:
            self._apart(parts, lambda part: part.points() if crossing(part.kernel) is None else part.tiled())

    def tiled(self) -> None:
        """Write loops over tiles; a tile copies the crossing tensors transposed, and then computes its elements."""
        row_var = crossing(self.kernel)
        assert row_var is not None
        column = self.kernel.outer[-1]
        (row,) = (loop for loop in self.kernel.outer if loop.var == row_var)
        others = [loop for loop in self.kernel.outer[:-1] if loop.var != row_var]
        turned = self._turned(row, column)
        side = SIDE if len(turned) == 1 else SMALL_SIDE
        tile, width = _side(row, side), _side(column, side)
        sides = (("row", row, tile), ("column", column, width))
        steps = [Range(name, loop, str(size), integer(size)) for name, loop, size in sides]
        self._share([*ranges(others), *steps])
        for name, loop, size in sides:
            rest = f"{c_index(loop.extent)} - {name}"
            self.out.line(f"const int64_t {name}s = {rest} < {size} ? {rest} : {size};")
        for position, load in turned.items():
            self._copy(position, load, row, column, width)
        if invariant_condition(self.kernel, self._needed()) is None:
            with self.out.block(f"if (rows == {tile} && columns == {width})"):
                self._tile(row, column, str(tile), str(width), width)
            self.out.open("else")
        else:
            self.out.open("")
        self._tile(row, column, "rows", "columns", width)
        self.out.close(3 + len(others))

    def _tile(self, row: Loop, column: Loop, rows: str, columns: str, most: int) -> None:
        """Write the elements of one tile; constant sizes let the compiler use whole vectors."""
        with self.out.block(f"for (int64_t i = 0; i < {rows}; i++)"):
            self.out.line(f"const int64_t {row.var.name} = row + i;")
            self.decided(lambda writer: writer.tile_row(column, columns, most))

    def tile_row(self, column: Loop, columns: str, most: int) -> None:
        """Write the elements of one row of a tile."""
        needed, stores = self._needed(), self.kernel.stores
        conversions = halves(self.names, column.var, needed, stores, ())
        with self._converted(conversions, "column", columns, str(most)):
            self.out.line(self._simd(needed, column))
            with self.out.block(f"for (int64_t j = 0; j < {columns}; j++)"):
                self.out.line(f"const int64_t {column.var.name} = column + j;")
                self._values(needed)
                self._stores(stores)

    def _turned(self, row: Loop, column: Loop) -> dict[int, Load]:
        """Return the loads across the last loop, by position, that tiles copy into ``turned`` arrays."""
        turned: dict[int, Load] = {}
        for k in self._needed():
            value = self.kernel.values[k]
            if not isinstance(value, Load) or value.mask is not None or operands(value):
                continue
            across = _across(value.index, column.var)
            if across and value.index.coefficient(row.var) == 1 and len(turned) < MAX_TRANSPOSED:
                turned[k] = value
        return turned

    def _copy(self, position: int, value: Load, row: Loop, column: Loop, width: int) -> None:
        """Write the transposed copy of one load into a stack array, from which the tile then reads."""
        step = value.index.coefficient(column.var)
        first = value.index.subs({row.var: ZERO, column.var: ZERO})
        assert step is not None
        start = f"{c_index(first)} + row + column * ({c_index(step)})"
        self.out.write_lines(self.names.turn(position, start, step, (SIDE, width), ("rows", "columns")))
