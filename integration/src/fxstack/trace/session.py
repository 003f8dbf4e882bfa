"""Read a record: the events of one process, in order, by kind and by graph."""

from __future__ import annotations

from collections import defaultdict
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any, TypeVar

from fxstack.trace.codec import TraceError, from_line
from fxstack.trace.records import Event, Started

Kind = TypeVar("Kind")


@dataclass(frozen=True)
class Session:
    """The events of one process, in order of time."""

    events: tuple[Event, ...]

    @cached_property
    def _indexed(self) -> dict[tuple[type, int | None], list[Any]]:
        """The bodies by kind, and by kind and graph: reports ask for those of each of hundreds of graphs."""
        found: defaultdict[tuple[type, int | None], list[Any]] = defaultdict(list)
        for event in self.events:
            kind = type(event.body)
            found[kind, None].append(event.body)
            if (graph := getattr(event.body, "graph", None)) is not None:
                found[kind, graph].append(event.body)
        return dict(found)

    def __repr__(self) -> str:
        return f"<Session of {len(self.events)} events>"

    @property
    def start(self) -> Started | None:
        """Return the record of the process; None if the events are not from a file."""
        return next(iter(self.of(Started)), None)

    def of(self, kind: type[Kind], graph: int | None = None) -> list[Kind]:
        """Return the bodies of one kind, of all graphs or of one."""
        return list(self._indexed.get((kind, graph), ()))


def load(path: str | Path) -> Session:
    """Return the record in a file. A last line that a crash has cut is left out.

    Raises:
        TraceError: a line is no event of this version.
        OSError: the file cannot be read.
    """
    text = Path(path).read_text(encoding="utf-8")
    lines = text.split("\n")[:-1]  # what follows the last line break is a cut line, or nothing
    events = [from_line(line, f"{path}, line {number}") for number, line in enumerate(lines, 1)]
    return Session(tuple(events))


def load_folder(folder: str | Path) -> list[Session]:
    """Return the records of all processes in a folder, by rank and process.

    Raises:
        TraceError: the folder has no record, or a line is no event of this version.
    """
    sessions = [load(path) for path in sorted(Path(folder).glob("trace-*.jsonl"))]
    sessions = [session for session in sessions if session.events]
    if not sessions:
        msg = f"{folder}: no file trace-*.jsonl; run the program with FXSTACK_REPORT={folder}"
        raise TraceError(msg)
    return sorted(sessions, key=_order)


def _order(session: Session) -> tuple[int, int]:
    start = session.start
    return (0, 0) if start is None else (start.rank, start.process)
