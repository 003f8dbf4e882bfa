"""Where in a trace a graph breaks, and stopping there: a path of steps through the inlined frames.

A call is *linked* when what the callee returns is, as it stands, the result of the caller's step. The frames of a
chain of linked calls can be continued one after another, so the graph can break inside any of them. A frame that
runs below anything else (C code that calls back, a rule, a generator) cannot: the graph then breaks in the
frame that made the call which is not linked, before it. The same holds for a function that has called itself many
times: every depth would have code of its own, while a real call runs what was compiled for the function.
"""

from __future__ import annotations

from inspect import CO_GENERATOR
from types import CellType, CodeType

from fxstack_capture.breaks import REASONS, GraphBreak
from fxstack_capture.interpreter.frame import Frame
from fxstack_capture.interpreter.values import NULL
from fxstack_capture.trace.records import NOTHING, Link, Stopped, StoppedFrame

_RECURRENCES = 8
_HOPELESS = "inline-limit"
"""Breaks for this reason end the root frame: all frames between would only say so again."""


def leave(frame: Frame, reason: GraphBreak, step: int) -> None:
    """Note that ``reason`` leaves ``frame`` at its step number ``step``."""
    if frame.link is None and not frame.code.co_flags & CO_GENERATOR:
        reason.below_c_code = True
    reason.leave(frame, step, is_linked=_can_continue(frame, reason))


def _can_continue(frame: Frame, reason: GraphBreak) -> bool:
    """Whether the graph may break inside of ``frame``, which ``reason`` leaves."""
    if frame.link is None or reason.record.reason.id == _HOPELESS:
        return False
    if not reason.path and (frame.program.library or frame.program.hidden):
        return False
    return _recurrences(frame) < _RECURRENCES


def _recurrences(frame: Frame) -> int:
    """How many of the frames that ``frame`` is continued with run the same function."""
    key, count = _function_of(frame.code), 0
    while frame.link is not None and frame.back is not None:
        frame = frame.back
        count += _function_of(frame.code) == key
    return count


def _function_of(code: CodeType) -> tuple[str, int, str]:
    """What a function's code has in common with the functions that continue it."""
    return code.co_filename, code.co_firstlineno, code.co_qualname


class Reached(GraphBreak):
    """The trace is where it was asked to stop. Leaves the interpreter as a graph break does."""

    def __init__(self) -> None:
        super().__init__(REASONS["tracing-error"], "stopped as asked")


class Descent:
    """The way to the step before which to stop: a step of the root frame, one of the frame that it calls, and so on."""

    def __init__(self, path: tuple[int, ...]) -> None:
        self._path = path
        self._frames: list[Frame] = []

    @property
    def root_step(self) -> int:
        """The step of the root frame at which the way ends or goes deeper."""
        return self._path[0]

    def step_in(self, frame: Frame) -> int:
        """That of a frame that is called; -1 if the way does not lead through it."""
        done = len(self._frames)
        if not 0 < done < len(self._path) or frame.back is not self._frames[-1]:
            return -1
        return -1 if frame.link is None else self._path[done]

    def arrive(self, frame: Frame) -> None:
        """``frame`` is at its step. Raises ``Reached`` at the end of the way."""
        self._frames.append(frame)
        if len(self._frames) == len(self._path):
            raise Reached

    def stopped(self, handled: BaseException | None) -> Stopped:
        """The state of all frames on the way; ``handled`` is the exception being handled in the last one."""
        states: list[StoppedFrame] = []
        called: Link | None = None
        for frame in reversed(self._frames):
            states.insert(0, _state(frame, called, handled))
            called, handled = frame.link, frame.handled_outside
        return Stopped(tuple(states))


def _state(frame: Frame, called: Link | None, handled: BaseException | None) -> StoppedFrame:
    names = frame.program.names
    bound = {i: name for i, name in enumerate(names) if frame.fast[i] is not NULL}
    # Before MAKE_CELL a cell variable's slot still holds the argument itself.
    cells = {i for i in frame.program.cell_indices if type(frame.fast[i]) is CellType}
    made = called is not None and called.made is not NOTHING
    return StoppedFrame(
        code=frame.code,
        namespace=frame.globals,
        offset=frame.program.offsets[frame.pc],
        stack=(*frame.stack, called.made) if called is not None and made else tuple(frame.stack),
        local_values={name: frame.fast[i] for i, name in bound.items() if i not in cells},
        cells={name: frame.fast[i] for i, name in bound.items() if i in cells},
        handling=frame.handling,
        handled=handled,
        handled_outside=frame.handled_outside,
        made=made,
    )
