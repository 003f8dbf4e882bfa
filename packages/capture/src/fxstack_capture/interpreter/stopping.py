"""Break paths: where a graph breaks in the inlined frames, and how a trace stops there.

A break path lists one step of each frame, from the root frame down to the break. A call is *linked*
(resumable) if its unchanged result is the result of the caller's step. Resume functions can continue a chain
of linked calls, one after the other, so the graph can break inside any of these calls.

No resume function can continue a frame below another kind of call: C code that calls back, a rule, a
generator. The graph then breaks in the caller, before that call. The same holds for a function that computes
NumPy arrays in a loop (``array_loops``), and for a function that has called itself many times. If the graph
broke inside, every depth would get its own code. A real call runs the code that is already compiled for the
function.
"""

from __future__ import annotations

from inspect import CO_GENERATOR
from types import CellType, CodeType

from fxstack_capture.breaks import REASONS, GraphBreak
from fxstack_capture.bytecode.null import NULL
from fxstack_capture.interpreter.array_loops import loops_over_arrays
from fxstack_capture.interpreter.frame import Frame
from fxstack_capture.trace.records import NOTHING, Link, Stopped, StoppedFrame

_MAX_RECURRENCES = 8
_BREAKS_ROOT = "inline-limit"
"""The reason for which the root frame must break: each inlined caller would break for the same reason."""


def leave(frame: Frame, reason: GraphBreak, step: int) -> None:
    """Record that ``reason``, a graph break in a called frame, leaves ``frame`` at its step number ``step``.

    The number counts the executed steps from 0.
    """
    if frame.link is None and not frame.code.co_flags & CO_GENERATOR:
        reason.below_c_code = True
    reason.leave(frame, step, is_linked=_can_continue(frame, reason))


def _can_continue(frame: Frame, reason: GraphBreak) -> bool:
    """Return whether the graph may break inside of ``frame``. ``reason`` is the graph break that leaves the
    frame.
    """
    if frame.link is None or reason.record.reason.id == _BREAKS_ROOT:
        return False
    if not reason.path and (frame.program.library or frame.program.hidden):
        return False
    if not frame.program.continues and loops_over_arrays(frame.code, frame.globals, frame.fast):
        return False
    return _recurrences(frame) < _MAX_RECURRENCES


def _recurrences(frame: Frame) -> int:
    """Return how many callers in the chain of linked calls of ``frame`` run the same function."""
    key, count = _function_of(frame.code), 0
    while frame.link is not None and frame.back is not None:
        frame = frame.back
        count += _function_of(frame.code) == key
    return count


def _function_of(code: CodeType) -> tuple[str, int, str]:
    """Return the file, the first line and the qualified name. A function and its resume functions share them."""
    return code.co_filename, code.co_firstlineno, code.co_qualname


class Reached(GraphBreak):
    """The trace has reached the end of the break path.

    This exception leaves the interpreter like a graph break.
    """

    def __init__(self) -> None:
        super().__init__(REASONS["tracing-error"], "stopped as asked")


class BreakPath:
    """The break path of a trace, and the frames that have reached their step of the path.

    The trace stops before the last step of the path. The path has a step of the root frame, a step of the
    frame that this step calls, and so on. With an empty path, the trace does not stop.
    """

    def __init__(self, path: tuple[int, ...]) -> None:
        self._path = path
        self._frames: list[Frame] = []

    @property
    def root_step(self) -> int:
        """The number of the path's step in the root frame. -1 for an empty path."""
        return self._path[0] if self._path else -1

    def step_in(self, frame: Frame) -> int:
        """Return the number of the path's step in a called frame. -1 if the path does not lead through the
        frame.
        """
        done = len(self._frames)
        if not 0 < done < len(self._path) or frame.back is not self._frames[-1]:
            return -1
        return -1 if frame.link is None else self._path[done]

    def arrive(self, frame: Frame) -> None:
        """Record that ``frame`` has reached its step of the path. Raises ``Reached`` at the end of the path."""
        self._frames.append(frame)
        if len(self._frames) == len(self._path):
            raise Reached

    def stopped(self, handled: BaseException | None) -> Stopped:
        """Return the state of all frames of the path, for their resume functions. Called after ``Reached``.

        ``handled`` is the exception that the last frame handles.
        """
        states: list[StoppedFrame] = []
        called: Link | None = None
        for frame in reversed(self._frames):
            states.insert(0, _state(frame, called, handled))
            called, handled = frame.link, frame.handled_outside
        return Stopped(tuple(states))


def _state(frame: Frame, called: Link | None, handled: BaseException | None) -> StoppedFrame:
    """Return the state of an interpreted frame for its resume function.

    ``called`` is the link of the call that the frame waits for. If the call already has a result,
    ``called.made``, the result becomes the last stack value.
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
