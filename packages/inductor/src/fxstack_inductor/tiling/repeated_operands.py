"""Choose a tile of rows and columns for a kernel whose operands repeat along its points.

In an image, all positions of a channel read the same mean and the same weight; in a matrix, all rows read the same bias.
One axis of points loads such an operand again for each element. A tile of rows (the outer loops) and columns (the last
loop) loads it once for a row or once for a column, and computes what depends only on such operands once, too.
"""

from __future__ import annotations

from collections.abc import Sequence

from fxstack_inductor.ir.expr import product
from fxstack_inductor.ir.kernel import Kernel, Load, Loop

LEAST_COLUMNS = 16
"""Shorter last loops are not worth an axis of their own."""
ACCESS = 8
"""The bytes that one access must be able to take from a row, or the tile would lose the wide accesses of its points."""
PROGRAMS = 512
"""Tiles get more rows, to share what repeats along them, if so many of them are left."""
SHARED_ROWS = 2
"""How many times more points such a tile has."""
WIDE = 1024
"""The columns of such a tile: each thread loads what is the same for all rows in wide accesses. In shorter rows a program
finds most of it in the cache again."""
MOST_PADDED = 1.1
"""The most columns that such tiles may span, in parts of the columns that there are."""
COLUMNS = (1024, 512, 256, 128, 64, 32, 16)
"""The columns that a tile may have."""
PER_TILE = 4
"""The cost of a row of a tile, in elements: what is loaded once for the row."""


def rows_and_columns(kernel: Kernel, points: int) -> tuple[int, int] | None:
    """Return the rows and columns of a tile of about ``points`` elements; None if one axis of points is as good.

    ``kernel`` has outer loops only, in the order of memory.
    """
    if len(kernel.outer) < 2:
        return None
    *above, last = kernel.outer
    count = last.extent.as_int()
    if count is None or count < LEAST_COLUMNS or not _keeps_width(kernel, last, count):
        return None
    number = product(loop.extent for loop in above).as_int()
    along_rows, along_columns = _repeat(kernel, above, last)
    if along_rows:
        columns = min(COLUMNS, key=lambda size: (1 + PER_TILE / size) * -(-count // size) * size)
        return max(1, points // columns), min(columns, points)
    rows = SHARED_ROWS * points // WIDE
    padded = -(-count // WIDE) * WIDE
    enough = number is not None and number * count >= PROGRAMS * rows * WIDE
    return (rows, WIDE) if along_columns and rows > 1 and enough and padded <= MOST_PADDED * count else None


def _keeps_width(kernel: Kernel, last: Loop, count: int) -> bool:
    """Whether accesses run along the last loop, and each row begins where a wide access may begin."""
    sizes = {ref.name: ref.dtype.itemsize for ref in kernel.buffers}
    accesses = [(v.buffer, v.index) for v in kernel.values if isinstance(v, Load)]
    accesses += [(s.buffer, s.index) for s in kernel.stores]
    widths = [
        sizes[name]
        for name, index in accesses
        if index.coefficient(last.var) == 1 and len(index.variables) > 1
    ]
    return bool(widths) and count * min(widths) % ACCESS == 0


def _repeat(kernel: Kernel, rows: Sequence[Loop], last: Loop) -> tuple[bool, bool]:
    """Return whether a load is the same for a whole row, and whether a load is the same for all rows."""
    outer = {loop.var for loop in rows}
    loads = [v.index.variables for v in kernel.values if isinstance(v, Load)]
    known = [variables for variables in loads if variables <= {*outer, last.var}]
    return (
        any(variables and last.var not in variables for variables in known),
        any(last.var in variables and outer.isdisjoint(variables) for variables in known),
    )
