"""HTML reports: of one compiled callable, and of everything that a job compiled (``FXSTACK_REPORT``).

Begin reading in ``page``. ``figures`` computes the numbers of the page from a record (``fxstack.trace``), ``charts`` draws.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

from fxstack.api import compile_log
from fxstack.log import CompileLog
from fxstack.report.page import STAGES, render, render_index
from fxstack.trace import Session, events, load_folder

INDEX = "index.html"


class ReportError(OSError):
    """A report cannot be written. The message says which path to pass instead."""


def stage_seconds(log: CompileLog) -> dict[str, float]:
    """Return the seconds of each stage, in pipeline order."""
    return {stage: log.seconds(stage) for stage in STAGES}


def write_report(
    compiled: Callable[..., Any],
    path: str | Path,
    *,
    title: str = "fxstack compilation report",
    facts: Mapping[str, str] | None = None,
    pictures: Sequence[str | Path] = (),
) -> None:
    """Write the report of a callable from ``fxstack.compile`` to ``path``: one file without references to the network.

    The page says what compiled, which lines broke the graph and why, why code was compiled again, where the time
    went, and shows every graph, partition and kernel. ``facts`` become a table at the top, with ``pictures`` (paths
    relative to the report) below it. Frames, guards and passes are only in the reports of ``FXSTACK_REPORT``.

    Raises:
        ReportError: ``path`` is no file that can be written.
        TypeError: ``compiled`` does not come from ``fxstack.compile``.
    """
    names = [Path(picture).name for picture in pictures]
    page = render(title, events(compile_log(compiled)), facts, names)
    file = Path(path)
    try:
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(page, encoding="utf-8")
    except OSError as error:
        why = f"{error.strerror}: {error.filename}"
        msg = f"write_report: {file} cannot be written ({why}). Pass the path of a file, for example {_example(file)}"
        raise ReportError(msg) from error


def _example(file: Path) -> Path:
    """Return a path that could be passed in place of ``file``."""
    folder = next(parent for parent in (file, *file.absolute().parents) if parent.is_dir())
    return (folder if os.access(folder, os.W_OK) else Path("out")) / "report.html"


def write_folder(folder: str | Path) -> Path:
    """Write a page for each record in ``folder``, and ``index.html``, which shows all processes. Return its path.

    Raises:
        TraceError: the folder has no record, or only records of another version.
        OSError: a page cannot be written.
    """
    root = Path(folder)
    sessions = load_folder(root)
    for session in sessions:
        if count := len(session.skipped):
            sys.stderr.write(
                f"fxstack: the report leaves out {count} lines or files: {'; '.join(session.skipped[:3])}\n"
            )
    pages = [_write_session(root, session) for session in sessions]
    index = root / INDEX
    index.write_text(render_index(sessions, pages), encoding="utf-8", errors="backslashreplace")
    return index


def _write_session(root: Path, session: Session) -> str:
    """Write the page of one process; return its file name."""
    start = session.start
    process = 0 if start is None else start.process
    rank = "" if start is None or start.rank < 0 else f", rank {start.rank}"
    name = f"process-{process}.html"
    page = render(f"fxstack: process {process}{rank}", session)
    (root / name).write_text(page, encoding="utf-8", errors="backslashreplace")
    return name
