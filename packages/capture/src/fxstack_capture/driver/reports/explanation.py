"""The result of ``explain``: the records of all frames, and their text."""

from __future__ import annotations

from dataclasses import dataclass
from html import escape
from typing import Any

from fxstack_capture.breaks import BreakRecord
from fxstack_capture.driver.reports.records import FrameRecord, Verdict
from fxstack_capture.guards.records import Guard
from fxstack_interchange.format.show import first_lines


@dataclass(frozen=True, slots=True, repr=False)
class Explanation:
    """All frames that the compiler traced in one call, in order. The texts of ``repr`` and ``str`` are short."""

    frames: tuple[FrameRecord, ...]
    """The records, one for each frame."""

    @property
    def graphs(self) -> tuple[Any, ...]:
        """The captured graph modules in the order of capture."""
        return tuple(frame.graph for frame in self.frames if frame.graph is not None)

    @property
    def breaks(self) -> tuple[BreakRecord, ...]:
        """The graph breaks of all frames, in order."""
        return tuple(frame.graph_break for frame in self.frames if frame.graph_break is not None)

    @property
    def guards(self) -> tuple[Guard, ...]:
        """The guards of all frames, in order."""
        return tuple(guard for frame in self.frames for guard in frame.guards)

    @property
    def operators(self) -> int:
        """The number of calls in all graphs."""
        return sum(len(_calls(graph)) for graph in self.graphs)

    # These are the names in torch's explanations, for programs that read them.

    @property
    def graph_count(self) -> int:
        """The number of graphs. The name is torch's."""
        return len(self.graphs)

    @property
    def graph_break_count(self) -> int:
        """The number of graph breaks. The name is torch's."""
        return len(self.breaks)

    @property
    def op_count(self) -> int:
        """The same as ``operators``. The name is torch's."""
        return self.operators

    @property
    def ops_per_graph(self) -> list[list[Any]]:
        """The targets of the calls in each graph."""
        return [[node.target for node in _calls(graph)] for graph in self.graphs]

    @property
    def out_guards(self) -> tuple[Guard, ...]:
        """The same as ``guards``. The name is torch's."""
        return self.guards

    @property
    def break_reasons(self) -> list[BreakReason]:
        """The graph breaks in the form of torch's explanations."""
        return [BreakReason(record.message, record.stack) for record in self.breaks]

    def _head(self) -> str:
        """Return one line with the numbers of graphs, operators, graph breaks and guards."""
        return (
            f"{len(self.graphs)} graph(s) with {self.operators} operator(s),"
            f" {len(self.breaks)} graph break(s), {len(self.guards)} guard(s)"
        )

    def __repr__(self) -> str:
        frames = [f"  {_verdict(frame)[:130]}" for frame in self.frames[:_MOST_FRAMES]]
        rest = len(self.frames) - len(frames)
        more = [f"  and {rest} more frames"] * (rest > 0)
        return "\n".join([f"<Explanation: {self._head()}", *frames, *more, "  .details() has all>"])

    def details(self) -> str:
        """Return graphs, graph breaks and replacement code of all frames."""
        return "\n".join([self._head(), *(_frame(frame) for frame in self.frames)])

    def __str__(self) -> str:
        return first_lines(self.details())

    def _repr_html_(self) -> str:
        """Return the explanation as HTML for a notebook, with one foldable part for each frame."""
        frames = (_frame(frame).partition("\n") for frame in self.frames)
        parts = (
            f"<details><summary>{escape(head)}</summary><pre>{escape(body)}</pre></details>"
            for head, _, body in frames
        )
        return f"<p>{escape(self._head())}</p>{''.join(parts)}"


@dataclass(frozen=True, slots=True)
class BreakReason:
    """A graph break in the form of torch's explanations. ``user_stack`` has the program's frames, innermost
    last.
    """

    reason: str
    """The whole message of the graph break."""
    user_stack: tuple[tuple[str, int, str], ...]
    """The program's frames (file, line, function), innermost last."""
    graph_break: bool = True
    """Always True, as in torch for a graph break."""


def _calls(graph: Any) -> list[Any]:
    """Return the nodes of a graph module that are calls."""
    return [node for node in graph.graph.nodes if node.op in ("call_function", "call_method", "call_module")]


_MOST_FRAMES = 12
"""The number of frames that ``repr`` of an explanation shows."""


def _verdict(frame: FrameRecord) -> str:
    """Return one line with the function, its place and the verdict on its frame."""
    return f'{frame.name} (File "{frame.file}", line {frame.line}): {frame.verdict}'


def _frame(frame: FrameRecord) -> str:
    """Return the report of one frame as text."""
    lines = [f"\n{_verdict(frame)}"]
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
    """Return ``text`` with ``by`` spaces before each line."""
    return "\n".join(" " * by + line for line in text.splitlines())
