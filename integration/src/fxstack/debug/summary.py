"""Counts of the compilations of a process: what was compiled, what was not, where the time went."""

from __future__ import annotations

import threading
from collections import Counter, defaultdict

from fxstack.log import Captured, Listener, StageTime
from fxstack_capture.breaks import BreakRecord
from fxstack_capture.driver.reports.recompiling import Recompilation
from fxstack_capture.driver.reports.records import FrameRecord, Verdict

MOST_ROWS = 20
"""Rows of one list in the text; a line says how many more there are."""


class Summary(Listener):
    """Counts the events of compilations. Several threads may compile."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self.functions: Counter[str] = Counter()
        """Entries by function."""
        self.graphs = 0
        self.breaks: Counter[str] = Counter()
        self.recompilations: Counter[str] = Counter()
        self.plain: dict[str, str] = {}
        """Functions that run in plain Python, with the reason."""
        self.seconds: defaultdict[str, float] = defaultdict(float)
        self.stored: Counter[bool] = Counter()
        """Look-ups of programs on disk: found or not."""

    def on_frame(self, record: FrameRecord) -> None:
        with self._lock:
            if record.verdict is Verdict.PLAIN:
                self.plain[record.place] = record.why.partition("\n")[0]
                return
            self.functions[record.place] += 1
            self.graphs += record.graph is not None
        if record.recompilation is not None:
            self.count_recompilation(record.recompilation)

    def count_recompilation(self, again: Recompilation) -> None:
        failure = again.failures[-1].message if again.failures else "no entry is left"
        with self._lock:
            self.recompilations[f"{again.name} ({again.file}:{again.line}): {failure}"] += 1

    def on_break(self, record: BreakRecord) -> None:
        file, line, function = record.stack[-1] if record.stack else ("?", 0, "a function")
        with self._lock:
            self.breaks[f"{file}:{line} in {function}: {record.title}; fix: {record.reason.fix}"] += 1

    def on_stored(self, _captured: Captured, *, found: bool) -> None:
        with self._lock:
            self.stored[found] += 1

    def on_time(self, _captured: Captured, time: StageTime) -> None:
        with self._lock:
            self.seconds[time.stage] += time.seconds

    def sentences(self) -> list[str]:
        """Return the counts in plain words."""
        stages = ", ".join(f"{stage} {seconds:.2f}" for stage, seconds in self.seconds.items()) or "none"
        head = (
            f"{len(self.functions)} functions compiled, {self.graphs} graphs, {self.breaks.total()} breaks,"
            f" {self.recompilations.total()} recompilations, {len(self.plain)} functions in plain Python"
        )
        stored = f"programs from the cache on disk: {self.stored[True]} of {self.stored.total()}"
        return [head, f"seconds by stage: {stages}", stored]

    def lists(self) -> dict[str, list[tuple[str, int]]]:
        """Return rows of text with their counts, by heading."""
        return {
            "Graph breaks": self.breaks.most_common(),
            "Recompilations": self.recompilations.most_common(),
            "In plain Python": [(f"{place}: {why}", 1) for place, why in self.plain.items()],
        }

    def text(self) -> str:
        """Return the counts and lists as a text."""
        first, *others = self.sentences()
        lines = [f"== fxstack summary: {first}", *others]
        for heading, rows in self.lists().items():
            if rows:
                lines.append(f"{heading}:")
                lines += [
                    f"  {f'{count} times ' if count > 1 else ''}{text}" for text, count in rows[:MOST_ROWS]
                ]
            if len(rows) > MOST_ROWS:
                lines.append(f"  and {len(rows) - MOST_ROWS} more")
        return "\n".join(lines) + "\n"
