"""What ``explain`` returns: the records of every frame, and how they print."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from fxstack_capture.breaks import BreakRecord
from fxstack_capture.driver.reports.records import FrameRecord, Verdict
from fxstack_capture.guards.records import Guard


@dataclass(frozen=True, slots=True)
class Explanation:
    """All frames that one call made the compiler look at, in order."""

    frames: tuple[FrameRecord, ...]

    @property
    def graphs(self) -> tuple[Any, ...]:
        """The captured graph modules, in the order in which they were captured."""
        return tuple(frame.graph for frame in self.frames if frame.graph is not None)

    @property
    def breaks(self) -> tuple[BreakRecord, ...]:
        return tuple(frame.graph_break for frame in self.frames if frame.graph_break is not None)

    @property
    def guards(self) -> tuple[Guard, ...]:
        return tuple(guard for frame in self.frames for guard in frame.guards)

    @property
    def operators(self) -> int:
        """Calls in all graphs."""
        calls = ("call_function", "call_method", "call_module")
        return sum(node.op in calls for graph in self.graphs for node in graph.graph.nodes)

    def __str__(self) -> str:
        head = (
            f"{len(self.graphs)} graph(s) with {self.operators} operator(s),"
            f" {len(self.breaks)} graph break(s), {len(self.guards)} guard(s)"
        )
        return "\n".join([head, *(_frame(frame) for frame in self.frames)])


def _frame(frame: FrameRecord) -> str:
    lines = [f'\n{frame.name} (File "{frame.file}", line {frame.line}): {frame.verdict}']
    if frame.why:
        lines.append(_indented(frame.why))
    if frame.recompilation is not None:
        lines.append(_indented(frame.recompilation.message))
    if frame.graph is not None:
        lines += ["  graph:", _indented(frame.graph.code.strip(), 4)]
    if frame.graph_break is not None:
        lines += ["  graph break:", _indented(frame.graph_break.message, 4)]
    if frame.verdict is Verdict.COMPILED:
        lines += ["  replaced by:", _indented(frame.code, 4)]
    return "\n".join(lines)


def _indented(text: str, by: int = 2) -> str:
    return "\n".join(" " * by + line for line in text.splitlines())
