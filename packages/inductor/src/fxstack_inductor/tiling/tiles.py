"""Divide a kernel into tiles: choose the loops that a tile spans, its sizes, and the number of warps.

- ``flat``: one axis of points. Broadcast loops are points like all others.
- ``tiled``: two axes, for accesses that run along different loops in memory, as in a transposition, or for operands that
  repeat along an axis (``repeated_operands``).
- ``persistent``: a tile holds all elements that are reduced or scanned; each value is computed once.
- ``rows``: as ``persistent``, but a program takes several tiles one after the other, to add up their columns.
- ``looped``: tiles iterate over the reduced or scanned elements, one pass per stage of reductions, as in C.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

from fxstack_inductor.ir.analysis import analyse
from fxstack_inductor.ir.expr import ZERO, Expr, Var, floordiv, product
from fxstack_inductor.ir.kernel import Kernel, Load, Loop, Reduce, Scan
from fxstack_inductor.ir.ordered import PERSISTENT
from fxstack_inductor.schedule.loops import normalise
from fxstack_inductor.tiling.one_pass import in_one_pass
from fxstack_inductor.tiling.repeated_operands import rows_and_columns

POINTS = 1024
"""The number of points of a program without inner loops."""
TILE = 2048
"""The number of elements of a tile that spans inner loops."""
PROGRAMS = 256
"""The number of programs that fills a large GPU about twice."""
RUN = 16
"""The number of neighbouring points that a program must read together where memory runs along them."""
FEWEST_POINTS = 128
"""The points of a program in a kernel with few points: one for each thread."""
LEAST_PER_WARP = 256
FEWEST_PER_WARP = (64, 128)
"""The least elements of a warp in a kernel with few programs, up to the usual number of warps and above it: a processor of its
own has room for more warps."""
CROWDED = 16
"""The number of buffers that a kernel can use with full tiles."""
WARPED = 4
"""With the most warps, a tile may have this many times the usual number of elements."""
NARROW = 8
"""Shorter loops are not worth an axis of their own."""


@dataclass(frozen=True, slots=True)
class Config:
    """Tile sizes and warps of one kernel."""

    xblock: int
    """Points of a tile along the outer loops."""
    rblock: int
    """Points of a tile along the inner loops."""
    num_warps: int
    num_stages: int = 1

    @property
    def constants(self) -> dict[str, int]:
        return {"XBLOCK": self.xblock, "RBLOCK": self.rblock}


@dataclass(frozen=True, slots=True)
class Tiling:
    """``kernel`` with its loops divided into the axes ``x`` (outer) and ``r`` (inner)."""

    kind: str
    """"flat", "tiled", "persistent", "rows" or "looped": see the module's docstring."""
    kernel: Kernel
    config: Config

    @property
    def grid(self) -> Expr:
        """The number of Triton programs that one launch starts."""
        programs = _blocks(self.kernel.outer, self.kernel.rows or self.config.xblock)
        if self.kind != "tiled":
            return programs
        return programs * _blocks(self.kernel.inner, self.config.rblock)


@dataclass(frozen=True, slots=True)
class Warps:
    """The warps of a launch of several kernels, whose tile sizes are in the text."""

    num_warps: int
    num_stages: int = 1

    @property
    def constants(self) -> dict[str, int]:
        return {}


@dataclass(frozen=True, slots=True)
class SideBySide:
    """One launch of several kernels. Each has programs of its own, in the order of ``parts``."""

    kernel: Kernel
    parts: tuple[Tiling, ...]
    kind: str = "side by side"

    @property
    def config(self) -> Warps:
        return Warps(max(part.config.num_warps for part in self.parts))

    @property
    def grid(self) -> Expr:
        """The number of Triton programs that one launch starts."""
        return sum((part.grid for part in self.parts), ZERO)


def _blocks(loops: tuple[Loop, ...], block: int) -> Expr:
    """Return how many blocks cover the points of ``loops``."""
    return floordiv(extent(loops) + (block - 1), block)


def extent(loops: tuple[Loop, ...]) -> Expr:
    """Return the number of points of a loop nest."""
    return product(loop.extent for loop in loops)


def tile(kernel: Kernel) -> Tiling:
    """Return a tiling with good sizes, chosen by rules without measurements, for a kernel without template."""
    if kernel.rows:
        return _rows(kernel)
    if kernel.scatters:  # atomic stores may collide in any order
        flat = normalise(replace(kernel, outer=(*kernel.outer, *kernel.inner), inner=()))
        return Tiling("flat", flat, Config(_points(flat), 1, 4))
    if not any(isinstance(v, (Reduce, Scan)) for v in kernel.values):
        return _pointwise(kernel)
    count, elements = extent(kernel.inner).as_int(), TILE // _crowding(kernel)
    across, looped = _along_outer(kernel), in_one_pass(kernel)
    if count is None or count > (_most_across(looped, elements) if across else PERSISTENT):
        return Tiling("looped", looped, _columns(kernel, elements) if across else Config(1, elements, 8))
    rblock = power_of_two(count)
    least = RUN if across else 1
    xblock = _spread(max(least, min(64, elements // rblock)), kernel)
    return Tiling("persistent", kernel, Config(xblock, rblock, _warps(xblock, rblock, elements, kernel)))


def _rows(kernel: Kernel) -> Tiling:
    """Return the tiling of a kernel with sums over columns: the points of a tile divide those of a program."""
    elements = TILE // _crowding(kernel)
    rblock = power_of_two(extent(kernel.inner).as_int() or 1)
    xblock = max(1, min(kernel.rows & -kernel.rows, elements // rblock))
    return Tiling("rows", kernel, Config(xblock, rblock, _warps(xblock, rblock, elements, kernel)))


def _columns(kernel: Kernel, elements: int) -> Config:
    """Return tile sizes for tiles that span contiguous points, as many points as there are up to a limit."""
    run = kernel.outer[-1].extent.as_int()
    xblock = elements // 32 if run is None else min(elements // 32, power_of_two(run))
    xblock = _spread(xblock, kernel)
    return Config(xblock, elements // xblock, 4)


def _most_across(kernel: Kernel, elements: int) -> int:
    """Return how many elements one tile may reduce if it spans contiguous points.

    With one pass, loops over such tiles cost nothing. With several passes, a tile that holds all elements
    saves the reads of later passes, if warps have enough registers. A scan is not cut if it fits.
    """
    if any(isinstance(v, Scan) for v in kernel.values):
        return PERSISTENT
    facts = analyse(kernel)
    stages = range(facts.last_stage + 1)
    passes = sum(bool(facts.reduces(k) or facts.stores(k, inner=True)) for k in stages)
    return elements // RUN if passes == 1 else elements * WARPED // RUN


def _spread(xblock: int, kernel: Kernel) -> int:
    """Return ``xblock``, or fewer points per program if there would be too few programs for a GPU.

    Programs keep at least ``RUN`` points where memory runs along the points.
    """
    points = extent(kernel.outer).as_int()
    least = RUN if _along_outer(kernel) else 1
    while points is not None and xblock > least and points < PROGRAMS * xblock:
        xblock //= 2
    return xblock


def _crowding(kernel: Kernel) -> int:
    """Return the number by which tile sizes are divided, so that a kernel with many buffers does not run out
    of registers.
    """
    return min(8, power_of_two(-(-len(kernel.buffers) // CROWDED)))


def _warps(xblock: int, rblock: int, elements: int, kernel: Kernel) -> int:
    """Return the number of warps of tiles of ``xblock`` times ``rblock`` elements.

    Usually 4, up to 16 for large tiles (a thread holds fewer elements) and in few programs, fewer for small tiles of many
    programs.
    """
    tile_size = xblock * rblock
    if tile_size > elements:
        return min(4 * WARPED, 4 * power_of_two(tile_size // elements))
    programs = _blocks(kernel.outer, kernel.rows or xblock).as_int()
    warps = max(1, min(4, tile_size // LEAST_PER_WARP))
    while programs and warps < 4 * WARPED and programs * warps < 4 * PROGRAMS:
        if tile_size <= warps * FEWEST_PER_WARP[warps >= 4]:
            break
        warps *= 2
    return warps


def _points(kernel: Kernel) -> int:
    """Return the points of a program of a kernel with outer loops only: fewer if programs would be too few for a GPU."""
    points, number = POINTS // _crowding(kernel), extent(kernel.outer).as_int()
    while number is not None and points > FEWEST_POINTS and number < PROGRAMS * points:
        points //= 2
    return points


def _pointwise(kernel: Kernel) -> Tiling:
    """Return the tiling of a kernel without reductions and scans: ``tiled`` if accesses cross or repeat, else ``flat``."""
    flat = normalise(replace(kernel, outer=(*kernel.outer, *kernel.inner), inner=()))
    across = _across(flat)
    if across is None:
        return _along_rows(flat)
    wide = max(ref.dtype.itemsize for ref in flat.buffers) > 2
    inner = tuple(loop for loop in flat.outer if loop.var == across)
    outer = tuple(loop for loop in flat.outer if loop.var != across)
    config = Config(64, 32, 4) if wide else Config(64, 64, 4)
    blocks = (_blocks(outer, config.xblock) * _blocks(inner, config.rblock)).as_int()
    if blocks is not None and blocks < PROGRAMS:
        config = Config(32, 32, 4)
    return Tiling("tiled", replace(flat, outer=outer, inner=inner), config)


def _along_rows(flat: Kernel) -> Tiling:
    """Return the tiling of a kernel whose accesses all run along the last loop."""
    points = _points(flat)
    sizes = rows_and_columns(flat, points)
    if sizes is None:
        return Tiling("flat", flat, Config(points, 1, 4))
    number = extent(flat.outer[:-1]).as_int()
    rows = sizes[0] if number is None else min(sizes[0], power_of_two(number))
    columns = replace(flat, outer=flat.outer[:-1], inner=flat.outer[-1:])
    return Tiling("tiled", columns, Config(rows, sizes[1], max(1, min(4, 4 * rows * sizes[1] // points))))


def _across(kernel: Kernel) -> Var | None:
    """Return the loop that some accesses traverse in memory order while others traverse the last loop."""
    if len(kernel.outer) < 2:
        return None
    last = kernel.outer[-1]
    indices = [v.index for v in kernel.values if isinstance(v, Load)]
    indices += [s.index for s in kernel.stores]
    for loop in kernel.outer[:-1]:
        runs = any(i.coefficient(loop.var) == 1 and last.var in i.variables for i in indices)
        if runs and not any(_short(part) for part in (loop, last)):
            return loop.var
    return None


def _short(loop: Loop) -> bool:
    """Whether a loop is too short for an axis of its own."""
    count = loop.extent.as_int()
    return count is not None and count < NARROW


def _along_outer(kernel: Kernel) -> bool:
    """Whether memory runs along the last outer loop; a tile should then span points."""
    if not kernel.outer:
        return False
    outer, inner = kernel.outer[-1].var, kernel.inner[-1].var
    # A load without inner loops, for example of a channel's mean, reads little beside the loads of the tiles.
    reduced = {loop.var for loop in kernel.inner}
    loads = [v for v in kernel.values if isinstance(v, Load) and not reduced.isdisjoint(v.index.variables)]
    across = sum(v.index.coefficient(outer) == 1 for v in loads)
    along = sum(v.index.coefficient(inner) == 1 for v in loads)
    return across > along


def power_of_two(value: int) -> int:
    """Return the least power of two that is not smaller than ``value``."""
    return 1 << max(0, value - 1).bit_length()
