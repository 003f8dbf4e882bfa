"""The outcomes of an attempt to trace a frame.

``outcome_of`` converts the exceptions that unwind the interpreter into outcomes.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from fxstack_capture.breaks import BreakRecord, GraphBreak, graph_break
from fxstack_capture.driver.replacement import Written
from fxstack_capture.emit.errors import CannotRebuildError, CannotResumeError
from fxstack_capture.guards.records import Guard
from fxstack_capture.torch_side.autograd.tensor_hooks import LaterHooks
from fxstack_capture.torch_side.recording.assumptions import HandledError, RefusedError
from fxstack_capture.trace.records import Blocks
from fxstack_capture.trace.state import Trace
from fxstack_capture.trace.strictness import is_error


@dataclass(frozen=True, slots=True)
class NotTraced:
    """The state before the first attempt."""

    text = ""


@dataclass(frozen=True, slots=True)
class AssumptionRefused:
    """The trace assumed that a check passes, but the graph cannot be undone if the check fails."""

    several: bool
    """Whether the trace assumed more than one check."""
    text = "an assumed check may fail, and the graph cannot be retracted"


@dataclass(frozen=True, slots=True)
class HandlerSees:
    """A handler of the program may get an error of a graph that cannot be undone. See ``HandledError``."""

    calls: dict[Blocks, tuple[int, int]]
    """Maps each group of blocks with a handler to the numbers of its first and its last call in the graph."""
    text = "a handler may see an error of the graph, which cannot be retracted"


@dataclass(frozen=True, slots=True)
class CannotRebuild:
    """Replacement code cannot make an object that leaves the graph. See ``CannotRebuildError``."""

    text: str
    """The phrase that names the object, for example "class New, which was created in the compiled code"."""
    made_at: int | None
    """The step of the root frame that made the object, as a count of steps. None if it is unknown."""


@dataclass(frozen=True, slots=True)
class CannotResume:
    """No resume function can continue the frame from its stop."""

    text: str
    """The reason as a clause: "the frame has run no instruction since the last graph break"."""


@dataclass(frozen=True, slots=True)
class Breaks:
    """The graph breaks. Each subclass stands for another reaction of the driver."""

    record: BreakRecord
    """The reason and the place."""

    @property
    def text(self) -> str:
        """The outcome as text for observers of passes."""
        return self.record.message


@dataclass(frozen=True, slots=True)
class NeedsLaterHooks(Breaks):
    """The replacement code must register hooks on tensors after the graph has run. See ``LaterHooks``."""

    numbers: frozenset[int]
    """The numbers of the hooks, counted in the order of their registration."""


@dataclass(frozen=True, slots=True)
class BreaksBelowC(Breaks):
    """The graph breaks in a frame that C code called, and no polyfill replaces the C code yet."""


@dataclass(frozen=True, slots=True)
class BreaksAt(Breaks):
    """The graph breaks. See ``GraphBreak``."""

    path: tuple[int, ...]
    """The break path, for example (12, 3). See ``GraphBreak.path``."""
    is_error: bool
    """Whether the program has declared that a graph break at this point is an error."""


@dataclass(frozen=True, slots=True)
class Raises(Breaks):
    """The call of the compiled function must raise ``error``. See ``GraphBreak.error``."""

    error: Exception
    """The exception that the caller gets."""


@dataclass(frozen=True, slots=True)
class PlainUntil(Breaks):
    """The frame and all calls in it run in plain Python as long as a guard holds."""

    until: Guard
    """The guard. When it fails, the next call is compiled."""


@dataclass(frozen=True, slots=True)
class PlainPython(Breaks):
    """The frame runs in plain Python."""

    why: str
    """The reason as text. It may contain more than the message of the record."""

    @property
    def text(self) -> str:
        return self.why


Traced = Written | PlainUntil | PlainPython
"""The outcomes that ``steps.write`` returns. No further attempt follows them."""

Ended = AssumptionRefused | HandlerSees | CannotRebuild | CannotResume | Breaks
"""The outcomes of an attempt that an exception has ended."""

Outcome = NotTraced | Ended | Written

UNWINDING: Final = RecursionError, RefusedError, CannotRebuildError, CannotResumeError, GraphBreak
"""The exceptions that leave the interpreter and end an attempt. ``outcome_of`` converts each to an outcome."""


def outcome_of(
    reason: RecursionError | RefusedError | CannotRebuildError | CannotResumeError | GraphBreak, trace: Trace
) -> Ended:
    """Return the outcome of an attempt that the exception ``reason`` has ended. ``attempt`` calls this function."""
    match reason:
        case RecursionError():
            deep = graph_break("inline-limit", "objects that hold each other very deeply").record
            return PlainPython(deep, deep.message)
        case HandledError():
            return HandlerSees(reason.calls)
        case RefusedError():
            return AssumptionRefused(reason.args == (True,))
        case CannotRebuildError():
            return CannotRebuild(reason.detail, reason.made_at)
        case CannotResumeError():
            return CannotResume(str(reason))
        case LaterHooks():
            return NeedsLaterHooks(reason.record, reason.numbers)
        case GraphBreak(error=Exception() as error):
            return Raises(reason.record, error)
        case GraphBreak(until=Guard() as until):
            return PlainUntil(reason.record, until)
        case GraphBreak(below_c_code=True) if not (trace.plan.polyfills or trace.options.fullgraph):
            return BreaksBelowC(reason.record)
        case GraphBreak():
            return BreaksAt(reason.record, reason.path, is_error(trace))
