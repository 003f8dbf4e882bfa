"""The record of compiled graphs and of the time of each stage, for reports and benchmarks."""

from __future__ import annotations

import itertools
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from types import CodeType
from typing import Any

from torch.fx import GraphModule

from fxstack.safe import Choice
from fxstack_capture.breaks import BreakRecord
from fxstack_capture.driver.reports.recompiling import Recompilation
from fxstack_capture.driver.reports.records import FrameRecord
from fxstack_capture.trace.records import CapturedCode
from fxstack_functionalize import SharedRegion
from fxstack_inductor import Failure, Lowered
from fxstack_inductor.targets.triton.artifact import LoweredTriton
from fxstack_interchange import Partition, StageGraph
from fxstack_interchange.torch_facts.settings_table import FUNCTORCH, INDUCTOR
from fxstack_interchange.torch_facts.torch_settings import warn_of_ignored

Compiled = Callable[..., Any]


@dataclass(frozen=True, slots=True)
class Captured:
    """A captured graph: its number in the process, and the function it comes from, with file and line."""

    number: int
    place: str
    """For example ``step (/home/me/train.py:31)``."""


NOT_CAPTURED = Captured(0, "a function")
"""The graph of calls that no observer of capture has seen, for example of a backend that a program calls itself."""


class Listener:
    """Gets the events of every compilation in the process. Each method does nothing unless a subclass has its own."""

    def wants_stages(self) -> bool:
        """Return whether graphs are to be compiled although a compiled program is on disk, which has no graphs."""
        return False

    def on_start(self, code: CodeType) -> None:
        """A compilation of a frame begins; its other events follow in the same thread."""

    def on_end(self, error: BaseException | None) -> None:
        """The compilation that began last in this thread ends, with the exception that it raises."""

    def on_captured(self, captured: Captured, code: CapturedCode) -> None:
        """Capture passes a graph to the backend."""

    def on_frame(self, record: FrameRecord) -> None:
        """Capture has looked at a frame."""

    def on_break(self, record: BreakRecord) -> None:
        """A graph break ended a graph."""

    def on_backend(self) -> None:
        """A backend of fxstack got a captured graph."""

    def on_stored(self, captured: Captured, *, found: bool) -> None:
        """A program was looked up on disk. ``found``: whether it was there, so that no stage runs for this graph."""

    def on_stage_graph(self, captured: Captured, graph: StageGraph) -> None:
        """A stage has made a graph: a joint graph, or one graph of a partition."""

    def on_partition(self, captured: Captured, parts: Partition) -> None:
        """A joint graph was cut into forward and backward."""

    def on_region(self, captured: Captured, region: SharedRegion) -> None:
        """Functionalize has found a region: several calls share one compilation, or the record says why not."""

    def on_compiled(
        self, captured: Captured, role: str, graph_module: GraphModule, made: Compiled
    ) -> Compiled | None:
        """Inductor has compiled a graph. ``role`` is ``forward``, ``backward`` or ``inference``.

        The result, if there is one, runs in place of ``made``.
        """

    def on_time(self, captured: Captured, time: StageTime) -> None:
        """A stage has worked on a graph. Called once for each stage and graph, after the work."""


LISTENERS: list[Listener] = []
AT_FIRST: list[Callable[[], None]] = []
"""Functions that are called before the first callable is compiled: imports that a mere import of fxstack does not need."""
_NUMBERS = itertools.count(1)


@dataclass(frozen=True, slots=True)
class StageTime:
    """The seconds that one stage spent on one captured graph. ``graph`` is the graph's number in order of capture."""

    stage: str
    """``capture``, ``functionalize``, ``partition``, ``inductor`` or ``backend``."""
    graph: int
    seconds: float


@dataclass(slots=True, repr=False)
class CompileLog:
    """All compilations of one compiled callable, in order. Several threads may append."""

    times: list[StageTime] = field(default_factory=list)
    """One entry for each stage of each graph."""
    breaks: list[BreakRecord] = field(default_factory=list)
    recompilations: list[Recompilation] = field(default_factory=list)
    choices: list[Choice] = field(default_factory=list)
    """The choices of ``mode="safe"``."""
    failures: list[tuple[int, Failure]] = field(default_factory=list)
    """Graphs or operators that ATen runs because of a defect of fxstack, with their captured graph."""
    from_disk: list[int] = field(default_factory=list)
    """Numbers of the captured graphs whose programs were found on disk, and neither traced nor lowered again."""
    captured: dict[int, Captured] = field(default_factory=dict)
    """The captured graphs, by their numbers in this log."""
    partitions: list[tuple[int, Partition]] = field(default_factory=list)
    """The number of the captured graph in this log, and its partition."""
    regions: list[tuple[int, SharedRegion]] = field(default_factory=list)
    """The shared regions, and the refused ones, with the number of the captured graph in this log."""
    programs: list[tuple[int, str, GraphModule, Lowered | LoweredTriton]] = field(default_factory=list)
    """Graphs that inductor has compiled, with role (``forward``, ``backward``, ``inference``) and generated code."""
    _graphs: list[tuple[int, StageGraph]] = field(default_factory=list)
    """The number of the captured graph in this log, and a stage graph."""
    newest: Captured = NOT_CAPTURED
    """The graph that was captured last."""
    _later: list[Callable[[], object]] = field(default_factory=list)
    """Functions that make the graphs of programs from disk when ``graphs`` is read."""
    _count: int = 0
    """The number of graphs that have a number."""
    _traced: float | None = None
    """The seconds of a trace whose graph has no number yet."""
    _lock: threading.Lock = field(default_factory=threading.Lock, repr=False)

    def __post_init__(self) -> None:
        while AT_FIRST:
            AT_FIRST.pop()()

    def __repr__(self) -> str:
        seconds = sum(time.seconds for time in self.times)
        return (
            f"<CompileLog: {self.graph_count} graphs, {self.break_count} breaks, {len(self.recompilations)}"
            f" recompilations, {self.failure_count} failures, {seconds:.2f} s>"
        )

    def next_graph(self) -> int:
        """Return a number for the graph that a backend has just got, and tell the listeners.

        The first graph of a log has number 0.
        """
        for listener in LISTENERS:
            listener.on_backend()
        with self._lock:
            self._count += 1
            self.captured[self._count - 1] = self.newest
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
        """Add the time of the ``with`` block to ``stage`` of the graph, even if the block raises."""
        start = time.perf_counter()
        try:
            yield
        finally:
            self.add_time(stage, graph, time.perf_counter() - start)

    def add_time(self, stage: str, graph: int, seconds: float) -> None:
        """Record seconds of a stage, and tell the listeners. ``graph``: a number of ``next_graph``."""
        spent = StageTime(stage, graph, seconds)
        with self._lock:
            self.times.append(spent)
        for listener in LISTENERS:
            listener.on_time(self.captured_of(graph), spent)

    def captured_of(self, graph: int) -> Captured:
        """Return the captured graph with this number (``next_graph``); the newest graph for an unknown number."""
        return self.captured.get(graph, self.newest)

    def keep(self, graph: int, stage_graph: StageGraph) -> None:
        """Tell the listeners of a stage graph, and keep it for ``graphs``."""
        for listener in LISTENERS:
            listener.on_stage_graph(self.captured_of(graph), stage_graph)
        with self._lock:
            self._graphs.append((graph, stage_graph))

    def keep_later(self, remake: Callable[[], object]) -> None:
        """Keep ``remake`` until somebody reads ``graphs``.

        ``remake`` makes the graphs of a program from disk, by ``keep``.
        """
        with self._lock:
            self._later.append(remake)

    @property
    def graphs(self) -> list[tuple[int, StageGraph]]:
        """Return the stage graphs with the numbers of their captured graphs."""
        while self._later:
            self._later.pop(0)()
        return sorted(self._graphs, key=lambda kept: kept[0])

    # the observer interface of capture

    def on_start(self, code: CodeType) -> None:
        """Warn of torch settings without effect, and tell the listeners that capture begins with a frame."""
        for module in (INDUCTOR, FUNCTORCH):  # capture warns of the settings that it follows
            warn_of_ignored(code, module)
        for listener in LISTENERS:
            listener.on_start(code)

    def on_end(self, error: BaseException | None) -> None:
        for listener in LISTENERS:
            listener.on_end(error)

    def on_trace(self, seconds: float) -> None:
        self._traced = seconds  # its graph gets a number after this

    def _add_traced(self) -> None:
        """Record the seconds of the trace that ended last (``on_trace``).

        Called at the next event of its graph or frame.
        """
        if self._traced is not None:
            seconds, self._traced = self._traced, None
            self.add_time("capture", self._count, seconds)

    def on_stored(self, graph: int, *, found: bool) -> None:
        """Tell the listeners of a look-up in the cache on disk. Record the graph if it was found."""
        for listener in LISTENERS:
            listener.on_stored(self.captured_of(graph), found=found)
        if found:
            self.from_disk.append(graph)

    @property
    def stored(self) -> int:
        """Return the number of programs that were found on disk."""
        return len(self.from_disk)

    def on_captured(self, place: str, code: CapturedCode) -> None:
        """Give a captured graph its number in the process, and tell the listeners.

        Capture calls this before the backend.
        """
        self.newest = Captured(next(_NUMBERS), place)  # one thread traces at a time
        for listener in LISTENERS:
            listener.on_captured(self.newest, code)
        self._add_traced()

    def on_partition(self, graph: int, parts: Partition) -> None:
        """Keep the partition of a graph, and tell the listeners."""
        with self._lock:
            self.partitions.append((graph, parts))
        for listener in LISTENERS:
            listener.on_partition(self.captured_of(graph), parts)

    def on_regions(self, graph: int, regions: Sequence[SharedRegion]) -> None:
        """Keep the regions of a graph, and tell the listeners."""
        with self._lock:
            self.regions += [(graph, region) for region in regions]
        for listener in LISTENERS:
            for region in regions:
                listener.on_region(self.captured_of(graph), region)

    def on_compiled(self, graph: int, role: str, graph_module: GraphModule, made: Compiled) -> Compiled:
        """Tell the listeners. Return the callable that runs: a listener may wrap it, to measure calls."""
        lowered = getattr(made, "lowered", None)
        if isinstance(lowered, Lowered | LoweredTriton):
            with self._lock:
                self.programs.append((graph, role, graph_module, lowered))
        for listener in LISTENERS:
            made = listener.on_compiled(self.captured_of(graph), role, graph_module, made) or made
        return made

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
        self._add_traced()
        for listener in LISTENERS:
            listener.on_frame(record)

    def on_break(self, record: BreakRecord) -> None:
        """Keep the record of a graph break, and tell the listeners."""
        for listener in LISTENERS:
            listener.on_break(record)
        with self._lock:
            self.breaks.append(record)

    def seconds(self, stage: str) -> float:
        """Return the total seconds of one stage, for example ``inductor``, over all graphs."""
        return sum(t.seconds for t in self.times if t.stage == stage)
