"""Start the listeners of all compilations, and write summary, record and report when the process ends."""

from __future__ import annotations

import resource
import shlex
import threading
from collections.abc import Callable
from contextlib import suppress
from functools import partial
from html import escape
from pathlib import Path

from fxstack.debug.artefacts import is_printed, report_folder, tell, trace_folders
from fxstack.debug.listener import DebugListener
from fxstack.debug.progress import Progress
from fxstack.log import LISTENERS, Captured, Listener, StageTime
from fxstack.torch_interop.structured_trace import StructuredTrace
from fxstack.trace import describe, records
from fxstack.trace.counts import Counts
from fxstack.trace.listener import TraceListener
from fxstack.trace.records import Body, Ended
from fxstack.trace.writer import TraceWriter
from fxstack_capture.breaks import BreakRecord
from fxstack_capture.driver.reports.records import FrameRecord
from fxstack_functionalize import SharedRegion
from fxstack_interchange.passes import observe

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
        """Count a frame and its recompilation for the summary at the end of the process."""
        self._add(describe.frame_of(record, 0, in_full=False))
        if record.recompilation is not None and record.recompilation.failures:
            self._add(describe.recompilation_of(record.recompilation))

    def on_break(self, record: BreakRecord) -> None:
        self._add(describe.break_of(record))

    def on_stored(self, captured: Captured, *, found: bool) -> None:
        self._add(records.Looked(captured.number, found))

    def on_region(self, captured: Captured, region: SharedRegion) -> None:
        self._add(describe.region_of(captured, region))

    def on_time(self, captured: Captured, time: StageTime) -> None:
        self._add(records.Spent(captured.number, captured.place, time.stage, time.seconds))

    def text(self) -> str:
        """Return the counts as a text."""
        spent = ", ".join(f"{stage} {each:.2f}" for stage, each in self.counts.seconds.items()) or "none"
        lines = ["== fxstack summary", *self.counts.sentences(MOST_ROWS), f"Seconds by stage: {spent}."]
        return "\n".join([*lines, ""])


def start() -> Callable[[], None]:
    """Follow all compilations. Nothing is shown unless the environment or torch's logs ask for it.

    Return the function that the end of the process calls.
    """
    summary = Summary()
    writer = TraceWriter()

    def write(body: Body) -> None:
        """Write a record to the trace of each folder. The first record of a report also writes an unfinished page."""
        for folder in trace_folders():
            if writer.write(folder, body) and folder == report_folder():
                _write_unfinished_page(Path(folder))

    trace = TraceListener(lambda: bool(trace_folders()), write, lambda: bool(report_folder()))
    debug = DebugListener()
    progress = Progress()
    LISTENERS.extend((progress, debug, summary, trace, StructuredTrace()))
    observe(progress)
    observe(trace)
    observe(debug)  # last: it may end the stage
    return partial(finish, summary, trace, writer)


def _write_unfinished_page(folder: Path) -> None:
    """Write an ``index.html`` that says how to make the report of a job that is killed before the report is written."""
    with suppress(OSError), (folder / "index.html").open("x", encoding="utf-8") as file:
        text = (Path(__file__).parents[1] / "templates/unfinished.html").read_text(encoding="utf-8")
        file.write(text.replace("FOLDER", escape(shlex.quote(str(folder.absolute())))))


def finish(summary: Summary, trace: TraceListener, writer: TraceWriter) -> None:
    """Print the closing table, and write the end of the record and the report, if the environment asks for them."""
    if is_printed("summary"):
        tell(summary.text())
    if not trace_folders():
        return
    trace.finish()
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024
    for folder in trace_folders():
        writer.write(folder, Ended(writer.seconds, peak))
    if report_folder():
        from fxstack.report import write_folder  # noqa: PLC0415 - Jinja takes 50 ms to import

        try:
            write_folder(report_folder())
        except (OSError, ValueError) as error:
            tell(f"fxstack: FXSTACK_REPORT: no report was written: {error}\n")
