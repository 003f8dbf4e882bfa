"""What was compiled and how long each stage took: the record behind reports and benchmarks."""

from __future__ import annotations

import threading
import time
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from fxstack.safe import Choice
    from fxstack_capture.breaks import BreakRecord
    from fxstack_capture.driver.reports.recompiling import Recompilation
    from fxstack_inductor import Failure
    from fxstack_interchange import StageGraph


@dataclass(frozen=True, slots=True)
class StageTime:
    """Seconds one stage spent on one captured graph (``graph`` numbers them in order of capture)."""

    stage: str
    graph: int
    seconds: float


@dataclass(slots=True)
class CompileLog:
    """Everything one compiled callable compiled, in order. Safe to append from several threads."""

    times: list[StageTime] = field(default_factory=list)
    breaks: list[BreakRecord] = field(default_factory=list)
    recompilations: list[Recompilation] = field(default_factory=list)
    choices: list[Choice] = field(default_factory=list)
    """What ``mode="safe"`` kept."""
    failures: list[tuple[int, Failure]] = field(default_factory=list)
    """Graphs, or single operators of them, that ATen runs because of a defect of fxstack, by the captured graph."""
    _graphs: list[tuple[int, StageGraph]] = field(default_factory=list)
    _later: list[Callable[[], object]] = field(default_factory=list)
    _count: int = 0
    _lock: threading.Lock = field(default_factory=threading.Lock, repr=False)

    def next_graph(self) -> int:
        with self._lock:
            self._count += 1
            return self._count - 1

    @property
    def graph_count(self) -> int:
        """Captured graphs handed to the backend so far."""
        return self._count

    @property
    def break_count(self) -> int:
        """Graph breaks seen while tracing; ``breaks`` says where and why."""
        return len(self.breaks)

    @property
    def failure_count(self) -> int:
        """How often ATen runs a graph or an operator because of a defect of fxstack; ``failures`` says where and why."""
        return len(self.failures)

    @contextmanager
    def measure(self, stage: str, graph: int) -> Iterator[None]:
        start = time.perf_counter()
        try:
            yield
        finally:
            self.add_time(stage, graph, time.perf_counter() - start)

    def add_time(self, stage: str, graph: int, seconds: float) -> None:
        with self._lock:
            self.times.append(StageTime(stage, graph, seconds))

    def keep(self, graph: int, stage_graph: StageGraph) -> None:
        with self._lock:
            self._graphs.append((graph, stage_graph))

    def keep_later(self, remake: Callable[[], object]) -> None:
        """Have ``remake`` keep the graphs of a program that came from the disk without them, if somebody asks."""
        with self._lock:
            self._later.append(remake)

    @property
    def graphs(self) -> list[tuple[int, StageGraph]]:
        """The stage graphs by the captured graph that they come from."""
        while self._later:
            self._later.pop(0)()
        return sorted(self._graphs, key=lambda kept: kept[0])

    # what capture tells its observer

    def on_trace(self, seconds: float) -> None:
        self.add_time("capture", self._count, seconds)

    def on_recompile(self, record: Recompilation) -> None:
        with self._lock:
            self.recompilations.append(record)

    def on_failure(self, graph: int, failure: Failure) -> None:
        with self._lock:
            self.failures.append((graph, failure))

    def on_choice(self, choice: Choice) -> None:
        with self._lock:
            self.choices.append(choice)

    def on_break(self, record: BreakRecord) -> None:
        with self._lock:
            self.breaks.append(record)

    def seconds(self, stage: str) -> float:
        """Total seconds of one stage over all graphs."""
        return sum(t.seconds for t in self.times if t.stage == stage)
