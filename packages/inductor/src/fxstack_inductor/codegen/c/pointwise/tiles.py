"""Write points whose memory lies across the vector loop: in tiles, with transposed copies on the stack.

A transposition without tiles reads a whole cache line for each element of a vector along the other dimension.
With tiles, each line is read once: blocks of the crossing tensors are transposed into stack arrays, which the
vector loop reads along memory.
"""

from __future__ import annotations

from fxstack_inductor.codegen.c.halves import halves
from fxstack_inductor.codegen.c.pointwise.points import PointsWriter
from fxstack_inductor.codegen.c.ranges import Range, for_head, ranges
from fxstack_inductor.codegen.c.reductions.copies import Copies, copies
from fxstack_inductor.codegen.index_text import c_index
from fxstack_inductor.ir.expr import integer
from fxstack_inductor.ir.kernel import Kernel, Loop, once_per_kernel
from fxstack_inductor.schedule.condition_splits import MAX_PARTS, invariant_condition, segments, wraps

SIDES = (128, 64, 32)
"""Rows and columns of a tile, largest first."""
NEIGHBOURS = 256
"""The most bytes of neighbours in memory that a tile reads or writes at once: enough for the prefetcher."""
CACHE = 1 << 16
"""The most bytes of all transposed copies, of which the second-level cache has room for the tensors, too."""
MIN_LOOP_POINTS = 8
"""Shorter loops are not worth a transposition."""
MAX_TRANSPOSED = 8
"""The largest number of transposed tensors; others are read and written in place."""


@once_per_kernel
def crossing(kernel: Kernel) -> Copies | None:
    """Return the accesses that cross the last loop and run along one other loop: most of them, then the largest. Else None."""
    if len(kernel.outer) < 2 or kernel.inner:
        return None
    *others, last = kernel.outer
    if not _long(last):
        return None
    found = [copies(kernel, last, loop) for loop in others if _long(loop)]
    chosen = max(found, key=lambda each: (_count(each), _variables(each)), default=None)
    return chosen.most(MAX_TRANSPOSED) if chosen else None


def _count(found: Copies | None) -> int:
    """Return the number of accesses that go through copies."""
    return len(found.loads) + len(found.stores) if found else 0


def _variables(found: Copies) -> int:
    """Return the number of loops that the accesses change along, of all together."""
    indices = [*(load.index for load, _ in found.loads.values()), *(store.index for store in found.stores)]
    return sum(len(index.variables) for index in indices)


def _long(loop: Loop) -> bool:
    """Whether a loop is worth a transposition; one of unknown length is."""
    extent = loop.extent.as_int()
    return extent is None or extent >= MIN_LOOP_POINTS


def _most_side(kernel: Kernel, found: Copies) -> int:
    """Return the rows and columns of a tile, if the loops have more."""
    dtypes = {ref.name: ref.dtype for ref in kernel.buffers}
    buffers = [*(load.buffer for load, _ in found.loads.values()), *(store.buffer for store in found.stores)]
    widest, width = max(dtypes[buffer].itemsize for buffer in buffers), found.width(dtypes)
    fitting = (side for side in SIDES if side * widest <= NEIGHBOURS and side * side * width <= CACHE)
    return next(fitting, SIDES[-1])


def _side(loop: Loop, most: int) -> int:
    """Return the extent of a tile along ``loop``: about ``most``, and all of a loop that would leave a small rest."""
    extent = loop.extent.as_int()
    return most if extent is None or extent > most * 5 // 4 else extent


@once_per_kernel
def tile_parts(kernel: Kernel) -> list[Kernel]:
    """Return ``kernel`` as parts of its last loop, or of another loop if more accesses cross between the wraps of that loop."""
    best = segments(kernel)
    for loop in kernel.outer[:-1]:
        parts = [part for rows in wraps(kernel, loop) for part in segments(rows)]
        if len(parts) < MAX_PARTS and _most(parts) > _most(best):
            best = parts
    return best


def _most(parts: list[Kernel]) -> int:
    return max(_count(crossing(part)) for part in parts)


def crosses(kernel: Kernel) -> bool:
    """Whether an access crosses the last loop, in the kernel or in one of its parts."""
    return any(crossing(part) is not None for part in tile_parts(kernel))


class TileWriter(PointsWriter):
    """Writes the body of one tiled function."""

    def tiles(self) -> None:
        """Write the tiles of each part; a part without crossing accesses needs none."""
        parts = tile_parts(self.kernel)
        if len(parts) == 1:
            self.tiled()
        else:
            self._apart(parts, lambda part: part.points() if crossing(part.kernel) is None else part.tiled())

    def tiled(self) -> None:
        """Write loops over tiles; a tile reads, and writes, the crossing tensors through transposed copies."""
        found = crossing(self.kernel)
        assert found is not None
        row, column = found.inner, found.row
        others = [loop for loop in self.kernel.outer[:-1] if loop is not row]
        side = _most_side(self.kernel, found)
        height, width = _side(row, side), _side(column, side)
        sides = (("row", "rows", row, height), ("tile", "width", column, width))
        self._share(
            [*ranges(others), *(Range(name, loop, str(size), integer(size)) for name, _, loop, size in sides)]
        )
        for name, count, loop, size in sides:
            rest = f"{c_index(loop.extent)} - {name}"
            self.out.line(f"const int64_t {count} = {rest} < {size} ? {rest} : {size};")
        self.out.write_lines(found.enter(self.names, "row", "rows", (height, width)))
        if invariant_condition(self.kernel, self._needed()) is None:
            with self.out.block(f"if (rows == {height} && width == {width})"):
                self._tile(row, column, str(height), str(width), width)
            self.out.open("else")
        else:
            self.out.open("")
        self._tile(row, column, "rows", "width", width)
        self.out.close()
        self.out.write_lines(found.leave(self.names, "row", "rows", width))
        self.out.close(2 + len(others))

    def _tile(self, row: Loop, column: Loop, rows: str, columns: str, most: int) -> None:
        """Write the elements of one tile; constant sizes let the compiler use whole vectors."""
        divided = [
            (f"max_int64_t({start} - row, 0)", f"min_int64_t({stop} - row, {rows})", kernel)
            for start, stop, kernel in self._row_ranges(row)
        ]
        for first, stop, kernel in divided or [("0", rows, self.kernel)]:
            with self.out.block(for_head("i", first, stop)):
                self.out.line(f"const int64_t {row.var.name} = row + i;")
                self._for(kernel).decided(lambda writer: writer.tile_row(column, columns, most))

    def tile_row(self, column: Loop, columns: str, most: int) -> None:
        """Write the elements of one row of a tile."""
        outside, inside = self._split(column)
        conversions = halves(self.names, column.var, inside, self.kernel.stores, outside, chunk=most)
        with self._converted(conversions, "tile", columns, str(most)):
            self.out.line(self._simd(inside, column))
            with self.out.block(f"for (int64_t j = 0; j < {columns}; j++)"):
                self.out.line(f"const int64_t {column.var.name} = tile + j;")
                self._values(inside)
                self._stores(self.kernel.stores)
