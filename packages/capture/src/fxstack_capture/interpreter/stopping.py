"""Break paths: where a graph breaks in the inlined frames, and how a trace stops there.

A break path lists one step of each frame from the root frame down to the break. A call is *linked*
(resumable) if its result is, unchanged, the result of the caller's step. The frames of a chain of linked
calls can be resumed one after another, so the graph can break inside any of them. A frame below another kind
of call (C code that calls back, a rule, a generator) cannot be resumed: the graph then breaks before that
call, in the frame that makes it. The same holds for a function that has called itself many times: every depth
would have its own code, while a real call runs the code that was compiled for the function.
"""

from __future__ import annotations

from inspect import CO_GENERATOR
from types import CellType, CodeType

from fxstack_capture.breaks import REASONS, GraphBreak
from fxstack_capture.bytecode.null import NULL
from fxstack_capture.interpreter.frame import Frame
from fxstack_capture.trace.records import NOTHING, Link, Stopped, StoppedFrame

_MAX_RECURRENCES = 8
_BREAKS_ROOT = "inline-limit"
"""A graph break for this reason breaks in the root frame: each inlined caller would break for the same reason."""


def leave(frame: Frame, reason: GraphBreak, step: int) -> None:
    """Record in ``reason``, a graph break in a called frame, that it leaves ``frame`` at the step with number ``step``.

    The number counts the executed steps from 0.
    """
    if frame.link is None and not frame.code.co_flags & CO_GENERATOR:
        reason.below_c_code = True
    reason.leave(frame, step, is_linked=_can_continue(frame, reason))


def _can_continue(frame: Frame, reason: GraphBreak) -> bool:
    """Return whether the graph may break inside of ``frame``, which ``reason`` leaves."""
    if frame.link is None or reason.record.reason.id == _BREAKS_ROOT:
        return False
    if not reason.path and (frame.program.library or frame.program.hidden):
        return False
    return _recurrences(frame) < _MAX_RECURRENCES


def _recurrences(frame: Frame) -> int:
    """Return the number of callers in the chain of linked calls of ``frame`` that run the same function."""
    key, count = _function_of(frame.code), 0
    while frame.link is not None and frame.back is not None:
        frame = frame.back
        count += _function_of(frame.code) == key
    return count


def _function_of(code: CodeType) -> tuple[str, int, str]:
    """Return file, first line and qualified name, which a function and its resume functions share."""
    return code.co_filename, code.co_firstlineno, code.co_qualname


class Reached(GraphBreak):
    """The trace has reached the end of the break path.

    This exception leaves the interpreter like a graph break.
    """

    def __init__(self) -> None:
        super().__init__(REASONS["tracing-error"], "stopped as asked")


class BreakPath:
    """The break path to the step before which the trace stops, and the frames that have reached their step.

    The path has a step of the root frame, a step of the frame that this step calls, and so on. A trace with an
    empty path does not stop.
    """

    def __init__(self, path: tuple[int, ...]) -> None:
        self._path = path
        self._frames: list[Frame] = []

    @property
    def root_step(self) -> int:
        """The number of the root frame's step at which the path ends or continues in a callee; -1 for an empty path."""
        return self._path[0] if self._path else -1

    def step_in(self, frame: Frame) -> int:
        """Return the number of the path's step in a called frame; -1 if the path does not lead through the frame."""
        done = len(self._frames)
        if not 0 < done < len(self._path) or frame.back is not self._frames[-1]:
            return -1
        return -1 if frame.link is None else self._path[done]

    def arrive(self, frame: Frame) -> None:
        """Record that ``frame`` has reached its step. Raises ``Reached`` at the end of the path."""
        self._frames.append(frame)
        if len(self._frames) == len(self._path):
            raise Reached

    def stopped(self, handled: BaseException | None) -> Stopped:
        """Return the state of all frames of the path after ``Reached``, for their resume functions.

        ``handled`` is the exception being handled in the last frame.
        """
        states: list[StoppedFrame] = []
        called: Link | None = None
        for frame in reversed(self._frames):
            states.insert(0, _state(frame, called, handled))
            called, handled = frame.link, frame.handled_outside
        return Stopped(tuple(states))


def _state(frame: Frame, called: Link | None, handled: BaseException | None) -> StoppedFrame:
    """Return the state of an interpreted frame for its resume function.

    A result ``called.made`` that the call has already produced is the last stack value.
    """
    names = frame.program.names
    bound = {i: name for i, name in enumerate(names) if frame.fast[i] is not NULL}
    # Before MAKE_CELL, the slot of a cell variable still holds the argument itself.
    cells = {i for i in frame.program.cell_indices if type(frame.fast[i]) is CellType}
    is_made = called is not None and called.made is not NOTHING
    return StoppedFrame(
        code=frame.code,
        namespace=frame.globals,
        offset=frame.program.offsets[frame.pc],
        stack=(*frame.stack, called.made) if called is not None and is_made else tuple(frame.stack),
        local_values={name: frame.fast[i] for i, name in bound.items() if i not in cells},
        cells={name: frame.fast[i] for i, name in bound.items() if i in cells},
        handling=frame.handling,
        handled=handled,
        handled_outside=frame.handled_outside,
        made=is_made,
    )
