"""The record of compiled graphs and of the time of each stage, for reports and benchmarks."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

from torch.fx import GraphModule

from fxstack.safe import Choice
from fxstack_capture.breaks import BreakRecord
from fxstack_capture.driver.reports.recompiling import Recompilation
from fxstack_capture.driver.reports.records import FrameRecord
from fxstack_inductor import Failure
from fxstack_interchange import StageGraph


class Listener:
    """Gets the events of every compilation in the process. Each method does nothing unless a subclass has its own."""

    def wants_stages(self) -> bool:
        """Return whether graphs are to be compiled although a compiled program is on disk, which has no graphs."""
        return False

    def on_captured(self, place: str, graph_module: GraphModule) -> None:
        """Capture passes a graph to the backend. ``place`` is the function, with file and line."""

    def on_frame(self, record: FrameRecord) -> None:
        """Capture has looked at a frame."""

    def on_break(self, record: BreakRecord) -> None:
        """A graph break ended a graph."""

    def on_backend(self) -> None:
        """A backend of fxstack got a captured graph."""

    def on_stored(self, *, found: bool) -> None:
        """A program was looked up on disk."""

    def on_stage_graph(self, place: str, graph: StageGraph) -> None:
        """A stage has made a graph from the one captured in ``place``."""

    def on_compiled(self, place: str, role: str, graph_module: GraphModule, made: Callable[..., Any]) -> None:
        """Inductor has compiled a graph. ``role`` is ``forward``, ``backward`` or ``inference``."""

    def on_time(self, time: StageTime) -> None:
        """A stage has worked on a graph."""


LISTENERS: list[Listener] = []


@dataclass(frozen=True, slots=True)
class StageTime:
    """The seconds of one stage for one captured graph (``graph``: its number in order of capture)."""

    stage: str
    graph: int
    seconds: float


@dataclass(slots=True, repr=False)
class CompileLog:
    """Everything that one compiled callable compiled, in order. Several threads may append."""

    times: list[StageTime] = field(default_factory=list)
    breaks: list[BreakRecord] = field(default_factory=list)
    recompilations: list[Recompilation] = field(default_factory=list)
    choices: list[Choice] = field(default_factory=list)
    """The choices of ``mode="safe"``."""
    failures: list[tuple[int, Failure]] = field(default_factory=list)
    """Graphs or operators that ATen runs because of a defect of fxstack, with their captured graph."""
    stored: int = 0
    """Number of programs that were found on disk, and neither traced nor lowered again."""
    places: dict[int, str] = field(default_factory=dict)
    """The functions from which graphs were captured, with file and line, by the numbers of the graphs."""
    _graphs: list[tuple[int, StageGraph]] = field(default_factory=list)
    place: str = "a function"
    """The function that is being captured, with file and line."""
    _later: list[Callable[[], object]] = field(default_factory=list)
    _count: int = 0
    _lock: threading.Lock = field(default_factory=threading.Lock, repr=False)

    def __repr__(self) -> str:
        seconds = sum(time.seconds for time in self.times)
        return (
            f"<CompileLog: {self.graph_count} graphs, {self.break_count} breaks, {len(self.recompilations)}"
            f" recompilations, {self.failure_count} failures, {seconds:.2f} s>"
        )

    def next_graph(self) -> int:
        for listener in LISTENERS:
            listener.on_backend()
        with self._lock:
            self._count += 1
            self.places[self._count - 1] = self.place
            return self._count - 1

    @property
    def graph_count(self) -> int:
        """Return the number of captured graphs passed to the backend so far."""
        return self._count

    @property
    def break_count(self) -> int:
        """Return the number of graph breaks seen while tracing. ``breaks`` has places and reasons."""
        return len(self.breaks)

    @property
    def failure_count(self) -> int:
        """Return the number of graphs and operators that ATen runs because of a defect of fxstack."""
        return len(self.failures)

    @contextmanager
    def measure(self, stage: str, graph: int) -> Iterator[None]:
        start = time.perf_counter()
        try:
            yield
        finally:
            self.add_time(stage, graph, time.perf_counter() - start)

    def add_time(self, stage: str, graph: int, seconds: float) -> None:
        spent = StageTime(stage, graph, seconds)
        with self._lock:
            self.times.append(spent)
        for listener in LISTENERS:
            listener.on_time(spent)

    def keep(self, graph: int, stage_graph: StageGraph) -> None:
        for listener in LISTENERS:
            listener.on_stage_graph(self.places.get(graph, ""), stage_graph)
        with self._lock:
            self._graphs.append((graph, stage_graph))

    def keep_later(self, remake: Callable[[], object]) -> None:
        """Keep ``remake``, which makes the graphs of a program from disk, until somebody reads ``graphs``."""
        with self._lock:
            self._later.append(remake)

    @property
    def graphs(self) -> list[tuple[int, StageGraph]]:
        """Return the stage graphs with the numbers of their captured graphs."""
        while self._later:
            self._later.pop(0)()
        return sorted(self._graphs, key=lambda kept: kept[0])

    # the observer interface of capture

    def on_trace(self, seconds: float) -> None:
        self.add_time("capture", self._count, seconds)

    def on_stored(self, *, found: bool) -> None:
        for listener in LISTENERS:
            listener.on_stored(found=found)
        with self._lock:
            self.stored += found

    def on_captured(self, place: str, graph_module: GraphModule) -> None:
        self.place = place  # one thread traces at a time
        for listener in LISTENERS:
            listener.on_captured(place, graph_module)

    def on_compiled(self, graph: int, role: str, graph_module: GraphModule, made: Callable[..., Any]) -> None:
        for listener in LISTENERS:
            listener.on_compiled(self.places.get(graph, ""), role, graph_module, made)

    def on_recompile(self, record: Recompilation) -> None:
        with self._lock:
            self.recompilations.append(record)

    def on_failure(self, graph: int, failure: Failure) -> None:
        with self._lock:
            self.failures.append((graph, failure))

    def on_choice(self, choice: Choice) -> None:
        with self._lock:
            self.choices.append(choice)

    def on_frame(self, record: FrameRecord) -> None:
        """Tell the listeners. The log keeps no frames: they hold the graphs and the code."""
        for listener in LISTENERS:
            listener.on_frame(record)

    def on_break(self, record: BreakRecord) -> None:
        for listener in LISTENERS:
            listener.on_break(record)
        with self._lock:
            self.breaks.append(record)

    def seconds(self, stage: str) -> float:
        """Return the total seconds of one stage over all graphs."""
        return sum(t.seconds for t in self.times if t.stage == stage)
