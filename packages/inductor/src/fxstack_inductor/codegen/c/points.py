"""Independent points as C: threads over the outer loops, vectors along the last, which has no decisions in it."""

from __future__ import annotations

from typing import TYPE_CHECKING

from fxstack_inductor.codegen.c.halves import RUN, halves
from fxstack_inductor.codegen.c.loops import LoopWriter
from fxstack_inductor.codegen.c.ranges import Range, ranges
from fxstack_inductor.codegen.c.text import index_text
from fxstack_inductor.codegen.c.threads import shared_heads
from fxstack_inductor.ir.expr import integer
from fxstack_inductor.schedule.borders import assume, invariant_condition, segments

if TYPE_CHECKING:
    from collections.abc import Sequence

    from fxstack_inductor.ir.kernel import Kernel

DEEPEST = 4
"""So many conditions that the last loop does not change are decided outside of it, where its body is short."""
SHALLOW = 2
"""The same for longer ones: each decision doubles what the C compiler reads."""
UNVECTORISED = '__asm__ volatile("");'
"""Keeps a loop around it from becoming a vector: its decisions would be masks of loads (see ``Names._apart``)."""
SHORT = 48
"""Values of a short body."""
LONG = 256
"""Points of a last loop that threads may share."""

Span = tuple[str, str]
"""Where a loop starts and stops, as C."""


class PointsWriter(LoopWriter):
    """Writes the body of one such function."""

    def points(self) -> None:
        loops = self.kernel.outer
        parts = segments(self.kernel)
        if len(loops) < 2:
            self._only_loops(parts)
            return
        span = self._open_rows(ranges(loops), alone=len(parts) == 1)
        for part in parts:
            writer = self._for(part)
            writer.decided(DEEPEST if len(writer._needed()) <= SHORT else SHALLOW, span)
        self.out.close(len(loops) - 1)

    def _only_loops(self, parts: Sequence[Kernel]) -> None:
        """Each part has shares of its own. One that is not shared is the first thread's, where others are: done twice,
        it would read what it has written.
        """
        alone = []
        for part in parts:
            shared, self.out.shared = self.out.shared, False
            start = len(self.out.lines)
            self.out.open("")
            self._for(part).only_loop()
            self.out.close()
            alone += [] if self.out.shared else [start]
            self.out.shared |= shared
        for start in alone if self.out.shared else ():
            self.out.lines[start] = self.out.lines[start].replace("{", "if (self == 0) {")

    def _open_rows(self, loops: Sequence[Range], *, alone: bool) -> Span | None:
        """Open all loops but the last; returns what this thread has of the last one, where threads share that too.

        They do where they could share too few rows, or nobody knows how many, and rows are long and in one part (``alone``).
        """
        *rows, last = loops
        sharing = self._sharing(rows)
        known = last.loop.extent.as_int()
        enough = sharing is not None and sharing.plenty
        if alone and not enough and (known is None or known >= LONG):
            every = self._sharing(loops)
            if every is not None and every.shared == len(loops):
                self._note(every)
                *heads, (declared, _, _) = shared_heads(every)
                for before, head, inside in heads:
                    self._lines(before)
                    self.out.open(head)
                    self.out.line(inside)
                self._lines(declared)
                return f"begin{len(rows)}", f"end{len(rows)}"
        self._open_shared(rows, sharing)
        return None

    def _for(self, kernel: Kernel) -> PointsWriter:
        """A writer of part of this function."""
        if kernel is self.kernel:
            return self
        writer = PointsWriter(kernel, self.grain)
        writer.out = self.out
        writer.names.apart = self.names.apart
        return writer

    def decided(self, depth: int, span: Span | None) -> None:
        """The last loop, once for each outcome of the conditions that it does not change."""
        position = invariant_condition(self.kernel, self._needed()) if depth else None
        if position is None:
            self.last_loop(span)
            return
        self.out.open("")
        self.out.line(UNVECTORISED)
        self._values(self.facts.needed([position]))
        for head, holds in ((f"if ({self.names.operand(position)})", True), ("else", False)):
            self.out.open(head)
            self._for(assume(self.kernel, position, holds=holds)).decided(depth - 1, span)
            self.out.close()
        self.out.close()

    def last_loop(self, span: Span | None) -> None:
        """The last loop, from ``span[0]`` to ``span[1]`` if it is shared."""
        needed = self._needed()
        loop = self.kernel.outer[-1]
        # A check among them would keep the loop from becoming a vector.
        varies = self._varying(loop)
        self.out.open("")
        outside = [k for k in needed if k not in varies]
        self._values(outside)
        inside = [k for k in needed if k in varies]
        found = halves(self.names, loop.var, inside, self.kernel.stores, frozenset(outside))
        with self._runs(found, span or ("0", index_text(loop.extent)), "#pragma omp simd"):
            self._values(inside)
            self._stores(self.kernel.stores)
        self.out.close()

    def only_loop(self) -> None:
        """The only loop, or none at all; threads share its points."""
        needed, loops, stores = self._needed(), self.kernel.outer, self.kernel.stores
        found = halves(self.names, loops[0].var, needed, stores, ()) if loops else None
        if not found:
            self._share(ranges(loops), simd=True)
            self._values(needed)
            self._stores(stores)
            self.out.close(len(loops))
            return
        size = index_text(loops[0].extent)
        self._share([Range("from", loops[0], str(RUN), integer(RUN))])
        with self._run(found, "from", size, "#pragma omp simd"):
            self._values(needed)
            self._stores(stores)
        self.out.close()
