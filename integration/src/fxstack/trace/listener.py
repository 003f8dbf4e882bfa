"""Turn the events of compilations into records."""

from __future__ import annotations

import difflib
import itertools
import threading
import weakref
from collections.abc import Callable
from functools import partial

from torch.fx import GraphModule

from fxstack.log import NOT_CAPTURED, Captured, Compiled, Listener, StageTime
from fxstack.trace import describe, records
from fxstack_capture.breaks import BreakRecord
from fxstack_capture.driver.reports.records import FrameRecord
from fxstack_capture.trace.records import CapturedCode
from fxstack_functionalize import SharedRegion
from fxstack_inductor import Lowered
from fxstack_inductor.targets.triton.artifact import LoweredTriton
from fxstack_interchange import Partition, Stage, StageGraph
from fxstack_interchange.passes import PassDone
from fxstack_interchange.user_warnings import warn_user
from fxstack_partition import PartitionOptions

MOST_ALTERNATIVES = 20
"""Maximum number of joint graphs that other partitioners cut too, when the process ends."""
MOST_NODES = 2000
_DEFAULTS = PartitionOptions()


class TraceListener(Listener):
    """Describes each event while ``wanted`` says so and gives it to ``write``.

    ``in_full``: whether calls of compiled CPU graphs are measured and passes have the text of their changes, which
    costs more than a twentieth of the time of compilation.
    """

    def __init__(
        self,
        wanted: Callable[[], bool],
        write: Callable[[records.Body], object],
        in_full: Callable[[], bool] = lambda: False,
    ) -> None:
        self._wanted, self._write, self._in_full = wanted, write, in_full
        self._numbers: weakref.WeakKeyDictionary[GraphModule, int] = weakref.WeakKeyDictionary()
        self._sources: dict[int, dict[str, str]] = {}
        """For each captured graph, where its inputs come from."""
        self._texts: dict[tuple[int, str], str] = {}
        """The text after the last pass, by thread and stage."""
        self._current = threading.local()
        self._is_incomplete = False
        self.joint: list[tuple[Captured, StageGraph]] = []

    def _add(self, described: Callable[[], records.Body]) -> None:
        """Write a record. Warn once if an event cannot be described, because a record must not end the program."""
        try:
            body = described()
        except Exception as error:
            if not self._is_incomplete:
                text = f"fxstack: a part of the record is missing: {type(error).__name__}: {error}. Please report this."
                warn_user(text, UserWarning)
            self._is_incomplete = True
        else:
            self._write(body)

    def wants_stages(self) -> bool:
        return self._wanted()

    def on_captured(self, captured: Captured, code: CapturedCode) -> None:
        """Record a captured graph, and remember its number for the frame."""
        self._current.captured = captured
        if self._wanted():
            self._numbers[code.graph_module] = captured.number
            sources = describe.paths_of(code)
            self._sources[captured.number] = sources
            self._add(lambda: describe.graph_of(captured, "captured", code.graph_module, sources))

    def on_frame(self, record: FrameRecord) -> None:
        """Record a frame and its recompilation."""
        if self._wanted():
            number = 0 if record.graph is None else self._numbers.get(record.graph, 0)
            self._add(lambda: describe.frame_of(record, number))
            if record.recompilation is not None and record.recompilation.failures:
                self._write(describe.recompilation_of(record.recompilation))

    def on_break(self, record: BreakRecord) -> None:
        if self._wanted():
            self._write(describe.break_of(record))

    def on_stored(self, captured: Captured, *, found: bool) -> None:
        if self._wanted():
            self._write(records.Looked(captured.number, found))

    def on_stage_graph(self, captured: Captured, graph: StageGraph) -> None:
        """Record a stage graph. Keep joint graphs for the comparison of partitioners in the report."""
        if not self._wanted():
            return
        if graph.signature.stage is Stage.JOINT and len(self.joint) < MOST_ALTERNATIVES:
            self.joint.append((captured, graph))
        self._add(lambda: describe.stage_graph(captured, graph, self._sources.get(captured.number, {})))

    def on_region(self, captured: Captured, region: SharedRegion) -> None:
        if self._wanted():
            self._write(describe.region_of(captured, region))

    def on_partition(self, captured: Captured, parts: Partition) -> None:
        if self._wanted():
            self._add(lambda: describe.cut_of(captured, parts, _DEFAULTS))

    def on_compiled(
        self, captured: Captured, role: str, graph_module: GraphModule, made: Compiled
    ) -> Compiled | None:
        """Record a compiled program. Return a replacement that measures some calls, if a full trace is asked for."""
        lowered = getattr(made, "lowered", None)
        if not self._wanted() or not isinstance(lowered, Lowered | LoweredTriton):
            return None
        from fxstack.trace.measure import measure_calls  # noqa: PLC0415 - only a record needs the cost model
        from fxstack.trace.programs import program_of  # noqa: PLC0415 - torch's operation counts take 0.1 s to import

        if role == "inference":
            sources = self._sources.get(captured.number, {})
            self._add(lambda: describe.graph_of(captured, "functional", graph_module, sources))
        self._add(lambda: program_of(captured, role, graph_module, lowered))
        if isinstance(lowered, Lowered) and self._in_full():
            return measure_calls(made, lowered, captured.number, role, self._write)
        return None

    def finish(self) -> None:
        """Record the figures of other partitioners. The end of the process calls it, so that no compilation waits."""
        for captured, joint in self.joint:
            if self._wanted() and len(joint.graph_module.graph.nodes) <= MOST_NODES:
                self._add(partial(describe.alternatives_of, captured, joint))
        self.joint.clear()

    def on_time(self, captured: Captured, time: StageTime) -> None:
        if self._wanted():
            self._write(records.Spent(captured.number, captured.place, time.stage, time.seconds))

    def on_stage(self, stage: str, text: Callable[[], str]) -> None:
        """Keep the text of the stage's state before its first pass, for the changes of this pass."""
        if self._wanted() and self._in_full():
            self._texts[threading.get_ident(), stage] = text()

    def on_pass(self, done: PassDone) -> None:
        """Record a pass, with its changes to the text of the stage's state."""
        if not self._wanted():
            return
        captured = getattr(self._current, "captured", NOT_CAPTURED)
        changes = self._changes(done) if self._in_full() else ""
        self._write(
            records.PassRun(
                captured.number, done.subject, done.stage, done.name, done.seconds, done.why or "", changes
            )
        )

    def _changes(self, done: PassDone) -> str:
        """Return the changes of a pass to the text of its stage's state, as a unified diff."""
        key = threading.get_ident(), done.stage
        before, after = self._texts.get(key, ""), done.text()
        self._texts[key] = after
        lines = difflib.unified_diff(before.splitlines(), after.splitlines(), lineterm="", n=2)
        return "\n".join(itertools.islice(lines, 2, None))
