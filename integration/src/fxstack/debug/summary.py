"""Counts of the compilations of the running process, which the closing table shows."""

from __future__ import annotations

import threading

from fxstack.log import Captured, Listener, StageTime
from fxstack.trace import describe, records
from fxstack.trace.counts import Counts
from fxstack_capture.breaks import BreakRecord
from fxstack_capture.driver.reports.records import FrameRecord

MOST_ROWS = 20
"""Maximum number of functions, breaks and recompilations in the text; a line gives the number of the rest."""


class Summary(Listener):
    """Counts the events of compilations for the closing table. Several threads may compile."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self.counts = Counts()

    def _add(self, body: records.Body) -> None:
        with self._lock:
            self.counts.add(body)

    def on_captured(self, captured: Captured, _code: object) -> None:
        self._add(records.Graph(captured.number, captured.place, "captured", "", (), (), (), ()))

    def on_frame(self, record: FrameRecord) -> None:
        self._add(describe.frame_of(record, 0, in_full=False))
        if record.recompilation is not None and record.recompilation.failures:
            self._add(describe.recompilation_of(record.recompilation))

    def on_break(self, record: BreakRecord) -> None:
        self._add(describe.break_of(record))

    def on_stored(self, captured: Captured, *, found: bool) -> None:
        self._add(records.Looked(captured.number, found))

    def on_time(self, captured: Captured, time: StageTime) -> None:
        self._add(records.Spent(captured.number, captured.place, time.stage, time.seconds))

    def text(self) -> str:
        """Return the counts as a text."""
        spent = ", ".join(f"{stage} {each:.2f}" for stage, each in self.counts.seconds.items()) or "none"
        lines = ["== fxstack summary", *self.counts.sentences(MOST_ROWS), f"Seconds by stage: {spent}."]
        return "\n".join([*lines, ""])
