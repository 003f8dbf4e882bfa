"""Read a record: the events of one process, in order, by kind and by graph."""

from __future__ import annotations

from collections import defaultdict
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path
from typing import Any, TypeVar

from fxstack.trace.codec import TraceError, TraceVersionError, from_line
from fxstack.trace.records import Event, Started

Kind = TypeVar("Kind")


@dataclass(frozen=True)
class Session:
    """The events of one process, in order of time. ``skipped``: unreadable lines and files, with the reason."""

    events: tuple[Event, ...]
    skipped: tuple[str, ...] = ()

    @cached_property
    def _indexed(self) -> dict[tuple[type, int | None], list[Any]]:
        """The bodies by kind, and by kind and graph, because reports look up bodies for hundreds of graphs."""
        index: defaultdict[tuple[type, int | None], list[Any]] = defaultdict(list)
        for event in self.events:
            kind = type(event.body)
            index[kind, None].append(event.body)
            if (graph := getattr(event.body, "graph", None)) is not None:
                index[kind, graph].append(event.body)
        return dict(index)

    def __repr__(self) -> str:
        return f"<Session of {len(self.events)} events>"

    @property
    def start(self) -> Started | None:
        """Return the record of the process; None if the events are not from a file."""
        return next(iter(self.of(Started)), None)

    def of(self, kind: type[Kind], graph: int | None = None) -> list[Kind]:
        """Return the bodies of one kind, of all graphs or of ``graph``."""
        return list(self._indexed.get((kind, graph), ()))


def load(path: str | Path) -> Session:
    """Return the record in a file. A last line that a crash has cut is left out; other damaged lines are ``skipped``.

    Raises:
        TraceError: the file has no event of this version, or is a folder.
        OSError: the file cannot be read.
    """
    if Path(path).is_dir():
        msg = f"{path} is a folder: pass one of its files trace-*.jsonl, or use fxstack.trace.load_folder"
        raise TraceError(msg)
    lines = (
        Path(path).read_bytes().split(b"\n")[:-1]
    )  # what follows the last line break is a cut line, or nothing
    events, skipped = [], []
    for number, line in enumerate(lines, 1):
        try:
            events.append(from_line(line, f"{path}, line {number}"))
        except TraceVersionError:
            raise
        except TraceError as error:
            skipped.append(str(error))
    if not events:
        why = f"{len(skipped)} lines are no events; {skipped[0]}" if skipped else "it has no whole line"
        msg = f"{path} is no record of fxstack, as FXSTACK_TRACE writes it into trace-PID.jsonl: {why}"
        raise TraceError(msg)
    return Session(tuple(events), tuple(skipped))


def load_folder(folder: str | Path) -> list[Session]:
    """Return the records of all processes in a folder, by rank and process.

    Files that cannot be read are ``skipped`` in the first session. Processes that were killed leave empty files.

    Raises:
        TraceError: the folder has no record of this version.
    """
    sessions: list[Session] = []
    skipped: list[str] = []
    for path in sorted(Path(folder).glob("trace-*.jsonl")):
        try:
            sessions += [load(path)] if path.is_dir() or path.stat().st_size else []
        except (TraceError, OSError) as error:
            skipped.append(str(error))
    if not sessions:
        why = skipped[0] if skipped else "no file trace-*.jsonl"
        msg = f"{folder}: {why}; run the program with FXSTACK_REPORT={folder}"
        if Path(folder).is_file():
            msg = f"{folder} is a file: pass the folder of the files trace-*.jsonl"
        raise TraceError(msg)
    first, *others = sorted(sessions, key=_order)
    return [replace(first, skipped=(*first.skipped, *skipped)), *others]


def _order(session: Session) -> tuple[int, int]:
    start = session.start
    return (0, 0) if start is None else (start.rank, start.process)
