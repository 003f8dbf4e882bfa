"""Write independent points as C: threads over the outer loops, vectors along the branch-free last loop."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Self

from fxstack_inductor.codegen.c.claims import UNVECTORISED
from fxstack_inductor.codegen.c.halves import halves
from fxstack_inductor.codegen.c.loops import LoopWriter
from fxstack_inductor.codegen.c.ops import REGISTER
from fxstack_inductor.codegen.c.pointwise.phases import phases
from fxstack_inductor.codegen.c.pointwise.row_values import row_values
from fxstack_inductor.codegen.c.ranges import Range, for_head, ranges
from fxstack_inductor.codegen.c.threads import shared_heads
from fxstack_inductor.codegen.index_text import c_index
from fxstack_inductor.ir.expr import integer, product
from fxstack_inductor.ir.kernel import Kernel, Loop
from fxstack_inductor.schedule.condition_splits import assume, invariant_condition, row_ranges, segments

MAX_DECISIONS = 4
"""The number of loop-invariant conditions that are decided outside a last loop with a short body."""
MAX_DECISIONS_OF_LONG_BODY = 2
"""The same for a longer body: each decision doubles the text that the C compiler reads."""
SHORT_BODY_VALUES = 48
"""The number of values in a short body."""
MIN_ROWS = 8
"""The least points of the loops around rows that are divided where conditions change: threads share these loops."""
MIN_SHARED_POINTS = 256
"""The number of points from which on threads may share a last loop."""

Span = tuple[str, str]
"""The start and stop of a loop, as C."""


class PointsWriter(LoopWriter):
    """Writes the body of one function without inner loops."""

    def points(self) -> None:
        """Write all loops; conditions that the last loop does not change are decided outside of the last loop."""
        found = row_values(self.kernel)
        writer = self._once(found) if found else self
        writer._each_point()

    def _each_point(self) -> None:
        loops = self.kernel.outer
        parts = segments(self.kernel)
        if len(loops) < 2:
            self._apart(parts, lambda writer: writer.only_loop())
            return
        around = product(loop.extent for loop in loops[:-2]).as_int()
        many = around is None or around >= MIN_ROWS
        found = phases(self.kernel) if many and not (self.names.targets or self.names.staged) else None
        if found or (many and self._row_ranges(loops[-2])):
            self._share(ranges(loops[:-2]))
            before = self if found is None else self._for(found[0])
            self.out.write_lines(before._arrays() if found else ())
            before._rows()
            if found:
                self._for(found[1]).decided(lambda writer: writer.last_loop(None))
            self.out.close(len(loops) - 2)
            return
        span = self._open_rows(ranges(loops), alone=len(parts) == 1)
        for part in parts:
            self._for(part).decided(lambda writer: writer.last_loop(span))
        self.out.close(len(loops) - 1)

    def _rows(self) -> None:
        """Write the last two loops, the rows in ranges, and each row in parts."""
        row = self.kernel.outer[-2]
        whole = "0", c_index(row.extent), self.kernel
        found = [(str(start), str(stop), rows) for start, stop, rows in self._row_ranges(row)]
        for start, stop, rows in found or [whole]:
            with self.out.block(for_head(row.var.name, start, stop)):
                for part in segments(rows):
                    self._for(part).decided(lambda writer: writer.last_loop(None))

    def _arrays(self) -> Iterator[str]:
        """Yield the declarations of the arrays that the stores write, of all rows."""
        sizes = {ref.name: c_index(ref.numel) for ref in self.kernel.buffers}
        for buffer in dict.fromkeys(store.buffer for store in self.kernel.stores):
            yield f"{REGISTER[self.names.dtypes[buffer]]} {self.names.buffers[buffer]}[{sizes[buffer]}];"

    def _row_ranges(self, row: Loop) -> list[tuple[int, int, Kernel]]:
        """Return the ranges of ``row`` in which a long body has fewer conditions (``row_ranges``); else nothing."""
        return row_ranges(self.kernel, row) if len(self._needed()) > SHORT_BODY_VALUES else []

    def _apart(self, parts: Sequence[Kernel], write: Callable[[Self], None]) -> None:
        """Write each part with its own loops and its own shares.

        An unshared part runs on the first thread only, beside shared parts: run twice, the part might read
        its own results.
        """
        alone = []
        for part in parts:
            shared, self.out.shared = self.out.shared, False
            start = len(self.out.lines)
            with self.out.block(""):
                write(self._for(part))
            alone += [] if self.out.shared else [start]
            self.out.shared |= shared
        for start in alone if self.out.shared else ():
            self.out.lines[start] = self.out.lines[start].replace("{", "if (self == 0) {")

    def _open_rows(self, loops: Sequence[Range], *, alone: bool) -> Span | None:
        """Open all loops but the last; return this thread's span of the last loop if threads share it, else None.

        Threads share the last loop if the rows are too few (or of unknown number), long, and in one part
        (``alone``).
        """
        *rows, last = loops
        sharing = self._sharing(rows)
        extent = last.loop.extent.as_int()
        enough = sharing is not None and sharing.plenty
        if alone and not enough and (extent is None or extent >= MIN_SHARED_POINTS):
            every = self._sharing(loops)
            if every is not None and every.shared == len(loops):
                self._note(every)
                *heads, (declared, _, _) = shared_heads(every)
                for before, head, inside in heads:
                    self.out.write_lines(before)
                    self.out.open(head)
                    self.out.line(inside)
                self.out.write_lines(declared)
                return f"begin{len(rows)}", f"end{len(rows)}"
        self._open_shared(rows, sharing)
        return None

    def decided(self, write: Callable[[Self], None], depth: int | None = None) -> None:
        """Let ``write`` write the last loop once for each outcome of conditions that the loop does not change.

        These are at most ``depth`` conditions; None: as many as the length of the body allows.
        """
        needed = self._needed()
        if depth is None:
            depth = MAX_DECISIONS if len(needed) <= SHORT_BODY_VALUES else MAX_DECISIONS_OF_LONG_BODY
        position = invariant_condition(self.kernel, needed) if depth else None
        if position is None:
            write(self)
            return
        with self.out.block(""):
            self.out.line(UNVECTORISED)
            self._values(self.facts.needed([position]))
            for head, holds in ((f"if ({self.names.operand(position)})", True), ("else", False)):
                with self.out.block(head):
                    self._for(assume(self.kernel, position, holds=holds)).decided(write, depth - 1)

    def last_loop(self, span: Span | None) -> None:
        """Write the last loop, over ``span`` if threads share it, else (None) over all points."""
        loop = self.kernel.outer[-1]
        with self.out.block(""):
            self._vector(loop, span or ("0", c_index(loop.extent)))

    def only_loop(self) -> None:
        """Write the only loop, or a single point; threads share the loop."""
        needed, loops, stores = self._needed(), self.kernel.outer, self.kernel.stores
        conversions = halves(self.names, loops[0].var, needed, stores, ()) if loops else None
        if not conversions:
            self._share(ranges(loops), self._simd(needed, loops[0]) if loops else "")
            self._values(needed)
            self._stores(stores)
            self.out.close(len(loops))
            return
        size = c_index(loops[0].extent)
        self._share([Range("from", loops[0], str(conversions.run), integer(conversions.run))])
        with self._run(conversions, "from", size, self._simd(needed)):
            self._values(needed)
            self._stores(stores)
        self.out.close()
