"""Write reductions along memory of which some operand lies across: blocks of rows, with transposed copies on the stack.

Read in place, such an operand takes a whole cache line for each element, and no vector. Here the lines of a block of
rows are read once, into stack arrays, along which the passes over each row then go. A kernel of one pass needs a piece of
the rows at a time: then the arrays are in the first-level cache, and the lanes of all rows of a block exist at once.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace

from fxstack_inductor.codegen.c.function import BLOCK, FunctionWriter
from fxstack_inductor.codegen.c.pointwise.tiles import MIN_LOOP_POINTS
from fxstack_inductor.codegen.c.ranges import Range, for_head, ranges
from fxstack_inductor.codegen.c.reductions.lanes import Lanes
from fxstack_inductor.codegen.c.reductions.lanes import width as lane_width
from fxstack_inductor.codegen.c.text import STACK
from fxstack_inductor.codegen.index_text import c_index
from fxstack_inductor.ir.analysis import analyse
from fxstack_inductor.ir.expr import ZERO, Var, integer
from fxstack_inductor.ir.kernel import CENTRED, Kernel, Load, Loop, operands

# Limits: rows of unknown length, of several loops, or too long for the stack are read in place. Rows in pieces have a length
# that is a multiple of the number of lanes.

BLOCKS = (64, 32, 16)
"""Numbers of rows in a block, largest first; the smallest fills a cache line of 4-byte elements."""
MIN_BLOCKS = 8
"""Blocks are smaller where there would be fewer of them than this for threads to share."""
CACHE = 1 << 16
"""Bytes of copies up to which a block has more rows than the smallest."""
PIECE, PIECES = 64, 1 << 14
"""The elements of a row in a piece, and bytes of copies up to which a block of pieces has more rows than the smallest.

256 float32 columns of 16 rows took 1.2 times, and whole rows 1.9 times as long as 64 columns of 64 rows.
"""
REGISTER_BYTES = 8
"""The most bytes of a number in registers."""


@dataclass(frozen=True, slots=True)
class Turned:
    """The loads to transpose, by position, and the outer loop ``row`` along which they are contiguous."""

    row: Loop
    loads: dict[int, Load]
    block: int
    """The number of rows whose copies are on the stack at once."""
    in_pieces: bool
    """Whether the copies are of ``PIECE`` elements of each row."""


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
    width = sum(dtypes[v.buffer].itemsize for v in loads.values())
    lanes = _lanes(kernel, size)
    in_pieces = lanes is not None and BLOCKS[-1] * (PIECE * width + lanes) <= STACK
    each, most = (PIECE * width, PIECES) if in_pieces else (size * width, CACHE)
    beside = lanes if lanes and in_pieces else 0
    if (rows is not None and rows < MIN_LOOP_POINTS) or BLOCKS[-1] * each > STACK:
        return None
    enough = [n for n in BLOCKS if n * each <= most and (rows is None or n * MIN_BLOCKS <= rows)]
    block = next((n for n in enough if n * (each + beside) <= STACK), BLOCKS[-1])
    return Turned(row, loads, block, in_pieces)


def _lanes(kernel: Kernel, size: int) -> int | None:
    """Return the bytes of the lanes of a row of ``size`` points; None if not all elements go into lanes in one pass."""
    facts = analyse(kernel)
    reduces, stores = facts.reduces(0), facts.stores(0, inner=True)
    later = range(1, facts.last_stage + 1)
    if any(facts.reduces(stage) or facts.stores(stage, inner=True) for stage in later):
        return None
    if any(kernel.reduction(k).op in CENTRED for k in reduces):
        return None
    computed = [
        k for k in facts.needed(facts.roots(reduces, stores), stop=facts.outer) if k not in facts.outer
    ]
    lanes = lane_width(kernel, computed, reduces)
    return len(reduces) * lanes * REGISTER_BYTES if lanes is not None and size % lanes == 0 else None


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
        size = c_index(inner.extent)
        others = [loop for loop in self.kernel.outer if loop is not row]
        self._share([*ranges(others), Range("block_row", row, str(plan.block), integer(plan.block))])
        rest = f"{c_index(row.extent)} - block_row"
        self.out.line(f"const int64_t rows = min_int64_t({rest}, {plan.block});")
        self.names.staged_at = inner.var.name
        if plan.in_pieces:
            self._pieces(plan, size)
        else:
            self._turn(plan, "0", size, int(size))
            with self._each_row(plan):
                self._passes()
        self.out.close(1 + len(others))

    def _turn(self, plan: Turned, first: str, count: str, most: int) -> None:
        """Write the transposed copies of ``count`` elements, of at most ``most``, of each row of a block."""
        inner = self.kernel.inner[0].var
        for k, load in plan.loads.items():
            step = load.index.coefficient(inner)
            assert step is not None
            start = f"{c_index(load.index.subs({plan.row.var: ZERO, inner: ZERO}))} + block_row"
            if first != "0":
                start = f"{start} + {first} * ({c_index(step)})"
            self.out.write_lines(self.names.turn(k, start, step, (plan.block, most), ("rows", count)))

    @contextmanager
    def _each_row(self, plan: Turned) -> Iterator[None]:
        """Write a loop over the rows of a block."""
        with self.out.block("for (int64_t i = 0; i < rows; i++)"):
            self.out.line(f"const int64_t {plan.row.var.name} = block_row + i;")
            yield

    def _pieces(self, plan: Turned, size: str) -> None:
        """Write the only pass, piece by piece of all rows of a block; long sums are added block by block (``_blocked``)."""
        reduces = self.facts.reduces(0)
        lanes = [replace(lane, rows=plan.block) for lane in self._lanes(0, reduces, [])]
        blocked = self._blocked(reduces)
        kinds = {k: how.wide if blocked else how.register for k in reduces if (how := self._accumulator(k))}
        self.out.write_lines(f"{kind} total{k}[{plan.block}];" for k, kind in kinds.items())
        self.out.write_lines(lane.array for lane in lanes)
        with self.out.block("for (int64_t i = 0; i < rows; i++)"):
            self.out.write_lines(f"total{k}[i] = {self._accumulator(k).identity};" for k in reduces)
        with self.out.block(for_head("block", "0", size, str(BLOCK if blocked else size))):
            self.out.line(f"const int64_t stop = min_int64_t({size}, block + {BLOCK if blocked else size});")
            with self.out.block("for (int64_t i = 0; i < rows; i++)"):
                self.out.write_lines(line for lane in lanes for line in lane.begin(lane.how.identity))
            self._take_in(plan, lanes)
            with self.out.block("for (int64_t i = 0; i < rows; i++)"):
                self._partials(reduces)
                for lane in lanes:
                    self.out.write_lines(lane.fold(f"part{lane.position}"))
                    acc, x = f"total{lane.position}[i]", f"part{lane.position}"
                    self.out.line(lane.how.step.format(acc=acc, x=x))
        with self._each_row(plan):
            emitted: set[int] = set()
            self._outer_values(0, emitted)
            self.out.write_lines(
                f"const {(how := self._accumulator(k)).register} v{k} = ({how.register})total{k}[i];"
                for k in reduces
            )
            self._outer_stores(0, emitted)

    def _take_in(self, plan: Turned, lanes: list[Lanes]) -> None:
        """Write the loop over the pieces from ``block`` to ``stop``: what their elements are computed from, and the lanes."""
        steps = {lane.position: lane.step(self._reduced(lane.position)) for lane in lanes}
        stores, inner = self.facts.stores(0, inner=True), self.kernel.inner[0].var
        points, self.names.staged_first = str(lanes[0].width), "piece"
        with self.out.block(for_head("piece", "block", "stop", str(PIECE))):
            self.out.line(f"const int64_t width = min_int64_t(stop - piece, {PIECE});")
            self._turn(plan, "piece", "width", PIECE)
            conversions = self._halves(0, list(steps), stores, chunk=lanes[0].width)
            with self._each_row(plan):
                self._outer_values(0, set())
                around = self._converted(conversions, "at", points, points)
                with self.out.block(for_head("at", "piece", "piece + width", points)), around:
                    self.out.line(self._simd(self._in_pass(0, list(steps), stores)))
                    with self.out.block(for_head("j", "0", points)):
                        self.out.line(f"const int64_t {inner.name} = at + j;")
                        self._inner_body(0, stores, steps)
