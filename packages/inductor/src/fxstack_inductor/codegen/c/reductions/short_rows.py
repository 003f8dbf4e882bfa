"""Write reductions and scans along short rows: a block of rows is transposed on the stack, and each lane of a vector has a row.

A vector along a short row has a rest, and sums across its lanes take longer than the row. Here the vector loops go over the rows
of a block, as in a reduction across memory. Each row is still summed in its order.
"""

from __future__ import annotations

from dataclasses import dataclass

from fxstack_inductor.codegen.c.ops import HALVES
from fxstack_inductor.codegen.c.ranges import Range, ranges
from fxstack_inductor.codegen.c.reductions.columns import ColumnWriter
from fxstack_inductor.codegen.c.reductions.copies import Copies, copies
from fxstack_inductor.codegen.c.reductions.lanes import width_with_rest
from fxstack_inductor.codegen.c.reductions.saved import SLOW
from fxstack_inductor.codegen.c.reductions.scan_rows import row_loop
from fxstack_inductor.codegen.c.text import STACK, Names
from fxstack_inductor.codegen.index_text import c_index
from fxstack_inductor.ir.analysis import Analysis, analyse
from fxstack_inductor.ir.expr import integer
from fxstack_inductor.ir.kernel import Compute, Kernel, Load, Loop, Reduce, Scan, once_per_kernel
from fxstack_inductor.ir.scalar_ops import EXPENSIVE, SLOW_SCANS

MAX_SIZE = 128
"""The most elements of a short row."""
VECTOR = 32
"""Bytes of a vector: what is left of a row takes its elements one by one."""
REDUCED, EXTREME = 15, 45
"""Cycles that a row takes for the sum, or the extreme, of the lanes of a vector."""
STEP = 4
"""Cycles of a scan for each element, which waits for the one before: slow scans, and scans beside reductions."""
CALLED, DIVIDED = 40, 15
"""Cycles of a slow function, or of a division or root, of one number."""
CALLED_OF_REST, OPERATION_OF_REST = 25, 1.5
"""Cycles of a slow function, or of another operation, of one element that is in no whole vector."""
TURNED = 3 / 8
"""Cycles for each byte of a transposed copy, and of the arrays that a block of rows keeps in memory beside it."""
BLOCKS = (64, 32, 16)
"""Numbers of rows in a block, largest first."""
CACHE = 1 << 15
"""Bytes of copies of a block: a first-level cache."""


@dataclass(frozen=True, slots=True)
class ShortRows:
    """The copies of rows of ``size`` elements, in blocks of ``block`` rows."""

    copies: Copies
    size: int
    block: int


@once_per_kernel
def short_rows(kernel: Kernel) -> ShortRows | None:
    """Return the plan of a kernel along short rows; None for other kernels."""
    size = kernel.inner[0].extent.as_int() if len(kernel.inner) == 1 and kernel.outer else None
    row = None if size is None or kernel.scatters else _row(kernel)
    if size is None or row is None or not 1 < size <= MAX_SIZE:
        return None
    found, dtypes = copies(kernel, row), Names(kernel).dtypes
    buffers = [*(v.buffer for v, _ in found.loads.values()), *(s.buffer for s in found.stores)]
    each = size * found.width(dtypes)
    others = _beside(kernel, found)
    if not found or len(buffers) < others or (others and not found.loads and not has_halves(kernel)):
        return None
    if _lost(analyse(kernel), size) <= TURNED * each:
        return None
    block = next((n for n in BLOCKS if n * each <= CACHE), BLOCKS[-1])
    return ShortRows(found, size, block)


def has_halves(kernel: Kernel) -> bool:
    """Whether the kernel reads or writes half-precision elements, which are converted one by one if they lie apart."""
    return any(ref.dtype in HALVES for ref in kernel.buffers)


def _beside(kernel: Kernel, found: Copies) -> int:
    """Return the number of accesses in the inner loop that are contiguous along an outer loop, which is not that of the rows."""
    facts, others = analyse(kernel), [loop.var for loop in kernel.outer if loop is not found.row]
    places = [v.index for k, v in enumerate(kernel.values) if isinstance(v, Load) and facts.inner[k]]
    places += [store.index for store in kernel.stores if facts.store_inner(store)]
    return sum(any(place.coefficient(var) == 1 for var in others) for place in places)


def _lost(facts: Analysis, size: int) -> float:
    """Return the cycles that vectors along a row of ``size`` elements lose."""
    values = facts.kernel.values
    lanes = VECTOR // max((v.dtype.itemsize for v in values if isinstance(v, Load)), default=4)
    lost, rest = 0.0, size % max(lanes, 1)
    folded = width_with_rest(facts.kernel, range(len(values))) is not None
    if folded:  # whole vectors, of which the last two overlap
        rest = 1
    for value, inner in zip(values, facts.inner, strict=True):
        match value:
            case Scan(op) if op in SLOW_SCANS or row_loop(facts.kernel) is None:
                lost += STEP * size
            case Reduce(op):
                lost += EXTREME if op in {"max", "min"} and not folded else REDUCED
            case Compute(op) if inner:
                lost += rest * (CALLED_OF_REST if op in EXPENSIVE else OPERATION_OF_REST)
            case Compute(op):
                lost += CALLED if op in EXPENSIVE else DIVIDED if op in SLOW else 0
    return lost


def _row(kernel: Kernel) -> Loop | None:
    """Return the innermost outer loop of enough points for a block; one of unknown length has enough."""
    sizes = [(loop.extent.as_int(), loop) for loop in reversed(kernel.outer)]
    return next((loop for size, loop in sizes if size is None or size >= BLOCKS[-1]), None)


class ShortRowWriter(ColumnWriter):
    """Writes the body of one function of short rows."""

    def short_rows(self) -> None:
        """Write blocks of rows, which threads share: transposed copies, the passes over the block, and the way back."""
        plan = short_rows(self.kernel)
        assert plan is not None
        row, size, block = plan.copies.row, plan.size, plan.block
        others = [loop for loop in self.kernel.outer if loop is not row]
        self._share([*ranges(others), Range("tile", row, str(block), integer(block))])
        self.out.line(f"const int64_t width = min_int64_t({c_index(row.extent)} - tile, {block});")
        self.out.write_lines(plan.copies.enter(self.names, "0", str(size), (size, block)))
        self.kept, self.most = self._kept(size * block, row, STACK), block
        self._tile(row, size, block)
        self.out.write_lines(plan.copies.leave(self.names, "0", str(size), block))
        self.out.close(1 + len(others))
