"""Write reductions along memory of which some operand lies across: blocks of rows, with transposed copies on the stack.

Read in place, such an operand takes a whole cache line for each element, and no vector. Here the lines of a block of
rows are read once, into stack arrays, along which the passes over each row then go.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass

from fxstack_inductor.codegen.c.function import FunctionWriter
from fxstack_inductor.codegen.c.pointwise.tiles import MIN_LOOP_POINTS
from fxstack_inductor.codegen.c.ranges import Range, ranges
from fxstack_inductor.codegen.c.text import STACK
from fxstack_inductor.codegen.index_text import c_index
from fxstack_inductor.ir.analysis import analyse
from fxstack_inductor.ir.expr import ZERO, Var, integer
from fxstack_inductor.ir.kernel import Kernel, Load, Loop, operands

# Limits: rows of unknown length, of several loops, or too long for the stack are read in place.

BLOCKS = (64, 32, 16)
"""Numbers of rows in a block, largest first; the smallest fills a cache line of 4-byte elements."""
MIN_BLOCKS = 8
"""Blocks are smaller where there would be fewer of them than this for threads to share."""
CACHE = 1 << 16
"""Bytes of copies up to which a block has more rows than the smallest."""


@dataclass(frozen=True, slots=True)
class Turned:
    """The loads to transpose, by position, and the outer loop ``row`` along which they are contiguous."""

    row: Loop
    loads: dict[int, Load]
    block: int
    """The number of rows whose copies are on the stack at once."""


def turned(kernel: Kernel) -> Turned | None:
    """Return the loads of a kernel of rows that are worth a transposition; None without any."""
    size = kernel.inner[0].extent.as_int() if len(kernel.inner) == 1 else None
    if size is None or size < MIN_LOOP_POINTS:
        return None
    inner, varies = kernel.inner[0].var, analyse(kernel).inner
    loads = {
        k: v
        for k, v in enumerate(kernel.values)
        if isinstance(v, Load) and varies[k] and v.mask is None and not operands(v)
        if v.buffer not in kernel.written and _across(v, inner)
    }
    votes = Counter(loop.var for v in loads.values() for loop in kernel.outer if _along(v, loop.var))
    if not votes:
        return None
    chosen = votes.most_common(1)[0][0]
    (row,) = (loop for loop in kernel.outer if loop.var == chosen)
    rows = row.extent.as_int()
    loads = {k: v for k, v in loads.items() if _along(v, chosen)}
    dtypes = {ref.name: ref.dtype for ref in kernel.buffers}
    each = size * sum(dtypes[v.buffer].itemsize for v in loads.values())
    if (rows is not None and rows < MIN_LOOP_POINTS) or BLOCKS[-1] * each > STACK:
        return None
    enough = [n for n in BLOCKS if n * each <= CACHE and (rows is None or n * MIN_BLOCKS <= rows)]
    block = enough[0] if enough else BLOCKS[-1]
    return Turned(row, loads, block)


def _across(load: Load, inner: Var) -> bool:
    """Whether ``load`` jumps from point to point of the inner loop."""
    step = load.index.coefficient(inner)
    return step is not None and step.as_int() not in {0, 1}


def _along(load: Load, var: Var) -> bool:
    """Whether neighbouring points of the loop over ``var`` are neighbours in memory."""
    return load.index.coefficient(var) == 1


class TurnedWriter(FunctionWriter):
    """Writes the body of one function of rows with transposed operands."""

    def turned_rows(self) -> None:
        """Write blocks of rows, which threads share: the transposed copies, then the passes over each row."""
        plan = turned(self.kernel)
        assert plan is not None
        row, inner = plan.row, self.kernel.inner[0]
        size = inner.extent.as_int()
        assert size is not None
        others = [loop for loop in self.kernel.outer if loop is not row]
        self._share([*ranges(others), Range("block_row", row, str(plan.block), integer(plan.block))])
        rest = f"{c_index(row.extent)} - block_row"
        self.out.line(f"const int64_t rows = min_int64_t({rest}, {plan.block});")
        for k, load in plan.loads.items():
            step = load.index.coefficient(inner.var)
            assert step is not None
            start = f"{c_index(load.index.subs({row.var: ZERO, inner.var: ZERO}))} + block_row"
            self.out.write_lines(self.names.turn(k, start, step, (plan.block, size), ("rows", str(size))))
        self.names.staged_at = inner.var.name
        self.out.open("for (int64_t i = 0; i < rows; i++)")
        self.out.line(f"const int64_t {row.var.name} = block_row + i;")
        self._passes()
        self.out.close(2 + len(others))
