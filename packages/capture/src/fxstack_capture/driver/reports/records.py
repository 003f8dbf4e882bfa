"""Records of compilations: one record for each traced frame. ``explain`` prints them."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from types import CodeType, NoneType
from typing import Any, Protocol

from fxstack_capture.breaks import BreakRecord
from fxstack_capture.driver.reports.recompiling import Recompilation
from fxstack_capture.emit.frame import Emitted
from fxstack_capture.guards.records import Guard
from fxstack_capture.trace.records import CapturedCode


def place_of(code: CodeType) -> str:
    """Return the name of a function in messages and profiles, for example "f (model.py:12)"."""
    return place_text(code.co_qualname, code.co_filename, code.co_firstlineno)


def place_text(name: str, file: str, line: int) -> str:
    """Return the text "name (file:line)" for a function."""
    return f"{name} ({file}:{line})"


class Verdict(StrEnum):
    """The result of compiling a frame."""

    COMPILED = "compiled"
    """An entry was installed. It has a graph, or is a part of a frame."""
    PLAIN = "plain"
    """The frame runs in plain Python. ``FrameRecord.why`` has the reason."""
    RAISES = "raises"
    """The program raises an exception. Plain Python raises it, under the same guards."""


@dataclass(frozen=True, slots=True)
class FrameRecord:
    """One frame that was traced, and the result. ``explain`` shows it. Observers get it (``on_frame``)."""

    name: str
    """The qualified name of the function that the user wrote."""
    file: str
    """The file of the function."""
    line: int
    """The first line of the function."""
    verdict: Verdict
    """The result for the frame."""
    why: str = ""
    """Why the frame runs in plain Python or raises. "" if it was compiled."""
    captured: CapturedCode | None = field(default=None, repr=False)
    """The captured graph, or None if no torch operation was captured."""
    guards: tuple[Guard, ...] = field(default=(), repr=False)
    """The guards of the entry. Empty without an entry."""
    names: Mapping[str, str] = field(default_factory=dict, repr=False)
    """The names of arguments for messages (see ``GuardFailure.renamed``)."""
    graph_break: BreakRecord | None = None
    """The graph break that ended the graph, or None."""
    emitted: Emitted | None = field(default=None, repr=False)
    """The replacement code, or None if the frame runs in plain Python."""
    recompilation: Recompilation | None = None
    """Why the existing entries did not fit. None for the first compilation."""
    resumed: bool = False
    """Whether the frame is the rest of a frame after a graph break."""

    @property
    def place(self) -> str:
        """The function with its file and line, for example "f (model.py:12)"."""
        return place_text(self.name, self.file, self.line)

    @property
    def code(self) -> str:
        """The replacement code as Python-like text. "" without replacement code."""
        return "" if self.emitted is None else self.emitted.text

    @property
    def graph(self) -> Any:
        """The captured graph module, or None."""
        return None if self.captured is None else self.captured.graph_module


@dataclass(slots=True)
class Tally:
    """Counters of one ``FrameCompiler``."""

    traced: int = 0
    """Number of frames that were traced."""
    breaks: int = 0
    """Number of graph breaks."""
    graphs: int = 0
    """Number of compiled graphs with tensors."""


@dataclass(slots=True)
class Reasons:
    """The first reasons why frames ran in plain Python. If the first call makes no graph, ``FirstCall``
    reports them.
    """

    texts: list[str] = field(default_factory=list)
    """One text for each function with its reason, for example "f (model.py:12): no torch operation was
    captured".
    """
    is_deferred: bool = False
    """Whether compilation was deferred to a later call."""

    def add(self, code: CodeType, why: str) -> None:
        """Record a reason. This method calls no builtin, because the program may have replaced builtins."""
        text = f"{code.co_qualname} ({code.co_filename}:{code.co_firstlineno}): {why}"
        if text not in self.texts:
            self.texts.append(text)
            del self.texts[_MAX_REASONS:]


_MAX_REASONS = 5
"""The largest number of reasons that are kept."""


class Observer(Protocol):
    """Receives the events of compilations. Users implement this class and pass an instance to ``optimize``.

    An observer may have more methods. ``on_recompile(record: Recompilation)`` and ``on_frame(record:
    FrameRecord)`` get records. ``on_captured(place: str, code: CapturedCode)`` is called before the backend
    gets the graph. ``on_start(code: CodeType)`` and ``on_end(error: BaseException | None)`` surround all
    events of a compilation.
    """

    def on_trace(self, seconds: float) -> None:
        """Called after a frame has been traced and its replacement code has been written.

        ``seconds`` excludes the time of the backend.
        """

    def on_break(self, record: BreakRecord) -> None:
        """Called when a graph break has ended a graph."""


def shown(error: BaseException) -> str:
    """Return an exception of the program as text, for example "ValueError('x', ...)".

    No ``__repr__`` of the program is called. Only texts and numbers are shown; any other argument becomes
    "...".
    """
    values = BaseException.__dict__["args"].__get__(error)
    plain = (repr(v) if type(v) in (str, int, float, bool, NoneType) else "..." for v in values)
    return f"{type(error).__name__}({', '.join(plain)})"
