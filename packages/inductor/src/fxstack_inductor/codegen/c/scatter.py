"""Write scatters as C: threads share loops over distinct elements; the other loops run in eager's order.

Where neighbours in memory are distinct elements (e.g. the columns of an embedding's gradient), each thread
takes some of these columns and visits all rows of the source; the loop over the columns is a vector.
"""

from __future__ import annotations

from fxstack_inductor.codegen.c.claims import Claim
from fxstack_inductor.codegen.c.loops import LoopWriter, flagged
from fxstack_inductor.codegen.c.ranges import ranges
from fxstack_inductor.ir.kernel import Check, Loop, index_variables

MIN_COLUMNS = 8
"""Fewer columns than this are not vectorised."""
MAX_COLUMNS = 1 << 16
"""The largest number of columns that a thread takes at once."""


class ScatterWriter(LoopWriter):
    """Writes the body of one scatter function."""

    def scatter(self) -> None:
        """Write the scatter; a kernel that may write nothing after a bad index checks all indices first."""
        if self.kernel.guarded:
            self._check_first()
        column = self._column()
        if column is None:
            self._points()
        else:
            self._columns(column)

    def _check_first(self) -> None:
        """Check all indices without writing; return if any index, here or in an earlier kernel, is bad."""
        self.checks()
        lines = flagged(self.out.lines, self.kernel)
        self.out.first, self.out.lines = ["  {", *lines, "  if (*error) return;", "  }"], []

    def checks(self) -> None:
        """Write the checks of all indices."""
        checks = [k for k, v in enumerate(self.kernel.values) if isinstance(v, Check)]
        needed = self.facts.needed(checks)
        if checks:
            used = {var for k in needed for var in index_variables(self.kernel.values[k])}
            loops = [loop for loop in self._all_loops() if loop.var in used]
            # The braces are needed where every index is one element, because then no loop opens any.
            self.out.open("")
            self._open_scalar(loops, Claim.CHECKS)
            self._values(needed)
            self.out.close(1 + len(loops))

    def _all_loops(self) -> tuple[Loop, ...]:
        """Return the outer loops, then the inner loops."""
        return (*self.kernel.outer, *self.kernel.inner)

    def _column(self) -> Loop | None:
        """Return the loop over contiguous elements, if it is the last of the independent loops."""
        if not self.kernel.outer or not self.kernel.inner:
            return None
        last = self.kernel.outer[-1]
        size = last.extent.as_int()
        along = all(store.index.coefficient(last.var) == 1 for store in self.kernel.stores)
        return last if along and (size is None or size >= MIN_COLUMNS) else None

    def _points(self) -> None:
        """Write one element after the other; threads share only the loops over distinct elements."""
        loops = self._all_loops()
        inner = self.kernel.inner
        self._share(ranges(self.kernel.outer), "" if inner else Claim.COLLISION.comment)
        self._open_scalar(inner, Claim.COLLISION)
        self._values(self._needed())
        self._stores(self.kernel.stores)
        self.out.close(len(loops))

    def _columns(self, column: Loop) -> None:
        """Write vector loops over contiguous columns; each thread takes some columns and visits all rows."""
        opened = self._open_columns(ranges(self.kernel.outer[:-1]), column, MAX_COLUMNS)
        self.out.line("const int64_t end = tile + width;")
        self._open_loops(self.kernel.inner)
        self._vector(column, ("tile", "end"))
        self.out.close(opened + len(self.kernel.inner))
