"""Follow all compilations of the process, and close what the environment asks for when the process ends."""

from __future__ import annotations

import atexit
import sys
from pathlib import Path

from fxstack.debug.artefacts import printed, report_folder
from fxstack.debug.listener import DebugListener
from fxstack.debug.output import REPORTED
from fxstack.debug.summary import Summary
from fxstack.log import LISTENERS
from fxstack.torch_interop.structured_trace import StructuredTrace


def start() -> None:
    """Follow all compilations. Nothing is shown unless the environment or torch's logs ask for it."""
    summary = Summary()
    LISTENERS.extend((DebugListener(), summary, StructuredTrace()))
    atexit.register(finish, summary)


def finish(summary: Summary) -> None:
    """Print the closing table and write the report, if the environment asks for them."""
    if printed("summary"):
        sys.stderr.write(summary.text())
    if report_folder():
        from fxstack.report import write_process_report  # noqa: PLC0415 - Jinja takes 50 ms to import

        try:
            write_process_report(Path(report_folder()), summary, REPORTED)
        except OSError as error:
            sys.stderr.write(f"fxstack: FXSTACK_REPORT: no report was written: {error}\n")
