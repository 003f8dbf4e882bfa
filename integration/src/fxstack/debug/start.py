"""Start the listeners of all compilations, and write summary, record and report when the process ends."""

from __future__ import annotations

import resource
import shlex
from collections.abc import Callable
from contextlib import suppress
from functools import partial
from html import escape
from pathlib import Path

from fxstack.debug.artefacts import is_printed, report_folder, tell, trace_folders
from fxstack.debug.listener import DebugListener
from fxstack.debug.progress import Progress
from fxstack.debug.summary import Summary
from fxstack.log import LISTENERS
from fxstack.torch_interop.structured_trace import StructuredTrace
from fxstack.trace.listener import TraceListener
from fxstack.trace.records import Body, Ended
from fxstack.trace.writer import TraceWriter
from fxstack_interchange.passes import observe


def start() -> Callable[[], None]:
    """Follow all compilations. Nothing is shown unless the environment or torch's logs ask for it.

    Return the function that the end of the process calls.
    """
    summary = Summary()
    writer = TraceWriter()

    def write(body: Body) -> None:
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
