"""The closing table of a process: what was compiled, what was not, and where the time went."""

from __future__ import annotations

import atexit
import sys
import threading
from collections import Counter, defaultdict

from fxstack.debug.artefacts import printed
from fxstack.log import Listener, StageTime
from fxstack_capture.breaks import BreakRecord
from fxstack_capture.driver.reports.records import FrameRecord, Verdict

MOST_ROWS = 20
"""Rows of one list; a line says how many more there are."""


class Summary(Listener):
    """Counts the events of all compilations of the process. Several threads may compile."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self.functions: Counter[str] = Counter()
        self.graphs = 0
        self.breaks: Counter[str] = Counter()
        self.recompilations: Counter[str] = Counter()
        self.plain: dict[str, str] = {}
        self.seconds: defaultdict[str, float] = defaultdict(float)
        self.stored: Counter[bool] = Counter()

    def on_frame(self, record: FrameRecord) -> None:
        with self._lock:
            if record.verdict is Verdict.PLAIN:
                self.plain[record.place] = record.why.partition("\n")[0]
                return
            self.functions[record.place] += 1
            self.graphs += record.graph is not None
            if record.recompilation is not None:
                failure = record.recompilation.failures[-1]
                self.recompilations[f"{record.place}: {failure.message}"] += 1

    def on_break(self, record: BreakRecord) -> None:
        file, line, function = record.stack[-1] if record.stack else ("?", 0, "a function")
        with self._lock:
            self.breaks[f"{file}:{line} in {function}: {record.title}; fix: {record.reason.fix}"] += 1

    def on_stored(self, *, found: bool) -> None:
        with self._lock:
            self.stored[found] += 1

    def on_time(self, time: StageTime) -> None:
        with self._lock:
            self.seconds[time.stage] += time.seconds

    def text(self) -> str:
        """Return the table."""
        stages = ", ".join(f"{stage} {seconds:.2f}" for stage, seconds in self.seconds.items()) or "none"
        head = (
            f"== fxstack summary: {len(self.functions)} functions compiled, {self.graphs} graphs,"
            f" {self.breaks.total()} breaks, {self.recompilations.total()} recompilations,"
            f" {len(self.plain)} frames in plain Python"
        )
        lines = [
            head,
            f"seconds by stage: {stages}",
            f"programs from the cache on disk: {self.stored[True]} of {self.stored.total()}",
        ]
        lines += _rows(
            "graph breaks", [f"{_times(count)}{text}" for text, count in self.breaks.most_common()]
        )
        lines += _rows(
            "recompilations", [f"{_times(count)}{text}" for text, count in self.recompilations.most_common()]
        )
        lines += _rows("in plain Python", [f"{place}: {why}" for place, why in self.plain.items()])
        return "\n".join(lines) + "\n"


def _times(count: int) -> str:
    return f"{count} times " if count > 1 else ""


def _rows(title: str, rows: list[str]) -> list[str]:
    more = [f"  and {len(rows) - MOST_ROWS} more"] if len(rows) > MOST_ROWS else []
    return [f"{title}:", *(f"  {row}" for row in rows[:MOST_ROWS]), *more] if rows else []


def print_at_exit(summary: Summary) -> None:
    """Print the table when the process ends, if ``FXSTACK_DEBUG`` names ``summary`` then."""

    def finish() -> None:
        if printed("summary"):
            sys.stderr.write(summary.text())

    atexit.register(finish)
