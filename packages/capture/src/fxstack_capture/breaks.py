"""The reasons of graph breaks: a registry, and the exception that carries a reason.

Every reason has an id, a description of the event, an explanation why the event ends the graph, and advice.
The id is stable and documented in ``docs/errors/``. Raise a reason with
``graph_break("data-dependent-branch", detail=...)``.
"""

from __future__ import annotations

import sys
from dataclasses import dataclass
from itertools import repeat
from traceback import FrameSummary, StackSummary
from typing import Any, Final

from fxstack_capture.guards.records import Guard

Position = tuple[int | None, int | None, int | None, int | None]
"""The first line, last line, first column and last column of an expression, as in ``co_positions``."""

_NOWHERE: Final[Position] = None, None, None, None


@dataclass(frozen=True, slots=True)
class Reason:
    """A kind of graph break. ``what`` may contain ``{detail}``."""

    id: str
    """The stable name, for example "data-dependent-branch". A page of ``docs/errors/`` has the same name."""
    what: str
    """The sentence about the event. It may contain ``{detail}``."""
    why: str
    """Sentences that explain why the event ends the graph."""
    fix: str
    """Sentences that advise the user."""


@dataclass(frozen=True, slots=True)
class BreakRecord:
    """One graph break. ``explain``, errors and observers show it."""

    reason: Reason
    """The kind of the graph break."""
    detail: str
    """The phrase that replaces ``{detail}`` in ``Reason.what``, or ""."""
    stack: tuple[tuple[str, int, str], ...] = ()
    """The user's frames (file, line, function), innermost last."""
    positions: tuple[Position, ...] = ()
    """For each frame of ``stack``, the position of the running expression. () if the positions are unknown."""

    @property
    def summary(self) -> StackSummary:
        """The frames with their source lines, in the form of Python's own tracebacks."""
        frames = zip(self.stack, self.positions or repeat(_NOWHERE), strict=False)
        return StackSummary.from_list([_frame_summary(frame, position) for frame, position in frames])

    @property
    def title(self) -> str:
        """The first line of the message, for example "[user-break] graph_break() was called by the program"."""
        return f"[{self.reason.id}] {self.reason.what.format(detail=self.detail)}"

    @property
    def message(self) -> str:
        """The whole text for users: the title, the explanation, the advice, and the program's frames."""
        where = "".join(["\n", *self.summary.format()]).rstrip()
        return f"{self.title}\nwhy: {self.reason.why}\nfix: {self.reason.fix}{where}"


def _frame_summary(frame: tuple[str, int, str], position: Position) -> FrameSummary:
    """Return a frame in the form of Python's tracebacks. If the expression begins in the line, it is marked
    below the line.
    """
    file, line, name = frame
    start, end, column, end_column = position
    if start != line:
        # The columns belong to another line, so they would mark the wrong text of this line.
        return FrameSummary(file, line, name)
    return FrameSummary(file, line, name, end_lineno=end, colno=column, end_colno=end_column)


class GraphBreak(BaseException):
    """The exception that leaves the interpreter and reaches the driver.

    User code cannot catch it. It is a BaseException, so that no ``except Exception`` catches it either.
    """

    def __init__(
        self, reason: Reason, detail: str = "", stack: tuple[tuple[str, int, str], ...] = ()
    ) -> None:
        super().__init__(reason.id, detail)
        self.record = BreakRecord(reason, detail, stack)
        self.error: Exception | None = None
        """If set, the compiled code raises this exception in its caller instead of breaking the graph."""
        self.earlier: int | None = None
        """If set, the graph must end before the root frame's step with this number. The cause of the break
        comes later.
        """
        self.path: tuple[int, ...] = ()
        """The break path: for each frame, from the root frame down, how many steps it has run before the
        break.

        () if the trace cannot stop in these frames.
        """
        self.below_c_code = False
        """Whether the break has left a frame that C code called. No resume function can continue such a
        frame.
        """
        self.is_argument = False
        """Whether the cause is an argument of a call, which graphs cannot hold. The body of the called
        function is not the cause.
        """
        self.until: Guard | None = None
        """If set, the frame and all calls in it run in plain Python as long as this guard holds."""
        self.whole: object = None
        """If set, the frame of a function that must run in plain Python as a whole.

        This includes each call of the function up to the break.
        """

    def leave(self, frame: object, step: int, *, is_linked: bool) -> None:
        """Record that the break leaves ``frame`` after ``step`` steps. The interpreter calls this for each
        frame.

        ``is_linked``: a resume function can continue the frame at this step (``interpreter.stopping``).
        """
        # The function of ``whole`` runs in plain Python from its start, so no path leads into it.
        inside = self.whole is not None
        if frame is self.whole:
            self.whole = None
        self.path = (step, *self.path) if is_linked and not inside else ()
        if self.earlier is not None:
            self.path = (self.earlier,)


_REASONS = (
    Reason(
        "data-dependent-branch",
        "a branch depends on the value of a tensor: {detail}",
        "The graph computes the value when it runs, so the tracer cannot choose a branch.",
        "Use torch.where or torch.cond, or move the branch out of the compiled function. For a condition that always"
        " holds, use torch._check.",
    ),
    Reason(
        "data-dependent-number",
        "Python code needs the number in a tensor: {detail}",
        "The graph computes the number when it runs, so the number is unknown while tracing.",
        "Keep the number in a tensor, or set capture_scalar_outputs=True.",
    ),
    Reason(
        "data-dependent-size",
        "the size of a result depends on the values of a tensor: {detail}",
        "The graph computes the values when it runs, so the size is unknown while tracing.",
        "Use an operator whose result has a fixed size, such as torch.where, or set capture_dynamic_output_shape_ops=True.",
    ),
    Reason(
        "data-dependent-value",
        "Python code needs the value of a tensor: {detail}",
        "The graph computes the value when it runs, so the value is unknown while tracing.",
        "Keep the value in a tensor, or move the code that needs it out of the compiled function.",
    ),
    Reason(
        "handled-error",
        "{detail} may raise an error that depends on tensor data, and the program handles errors of this call",
        "The handler must run directly after the call. A graph that changes its inputs cannot be undone to this call.",
        "Move the call, or the change of the inputs, out of the block. Handlers that only restore state do not break.",
    ),
    Reason(
        "unsupported-call",
        "a call of {detail} cannot be traced",
        "The function is compiled code, which may have effects outside of its arguments.",
        "Move the call out of the compiled function, or register it as a custom operator with torch.library.",
    ),
    Reason(
        "fake-function",
        "{detail}",
        "The tracer runs the fake function in place of the operator, to learn what the operator returns.",
        "Correct the fake function that the program registered; torch.library.opcheck tests it.",
    ),
    Reason(
        "side-effect-call",
        "{detail} has an effect outside of the program (output, files, time, threads)",
        "The effect must happen once per call and in program order, so the call runs between two graphs.",
        "Move the call out of the compiled function.",
    ),
    Reason(
        "debugger",
        "{detail} calls a debugger",
        "A debugger shows the lines and variables of a frame. The frame therefore runs in plain Python as a whole.",
        "Remove the call of the debugger to compile the function.",
    ),
    Reason(
        "disabled",
        "{detail} is excluded from compilation",
        "The program, or a library, excluded the function with disable().",
        "Remove the annotation, or accept the graph break.",
    ),
    Reason(
        "disallowed",
        "{detail} must not be in a graph",
        "The program excluded the function from graphs with disallow_in_graph().",
        "Remove the call of disallow_in_graph(), or accept the graph break.",
    ),
    Reason(
        "forbidden",
        "{detail} is called in compiled code",
        "The program declared calls of the function in compiled code an error, with forbid_in_graph().",
        "Call the function outside of the compiled function.",
    ),
    Reason(
        "skipped-by-backend",
        "the backend asked to skip this frame: {detail}",
        "A backend may raise SkipFrame for a graph that the backend does not compile.",
        "No fix is needed: the frame runs in plain Python.",
    ),
    Reason(
        "unsupported-by-backend",
        "the backend does not support a graph: {detail}",
        "The backend raised an error of fake tensors, which says that an operator has no result while compiling.",
        "Use another backend, or keep the operator out of the compiled function.",
    ),
    Reason(
        "operator-function",
        "{detail} cannot be captured",
        "A higher-order operator calls its functions in the graph, each as one graph without effects.",
        "Let the functions compute tensors from their operands alone, and return the same structure and dtypes in every "
        "branch and iteration (cast with `.to`), or call the operator outside of the compiled function.",
    ),
    Reason(
        "user-break",
        "graph_break() was called {detail}",
        "The program requested the graph break.",
        "Remove the call of graph_break().",
    ),
    Reason(
        "user-skip",
        "skip_frame() was called {detail}",
        "The program requested that the function runs in plain Python. The functions that it calls are compiled.",
        "Remove the call of skip_frame().",
    ),
    Reason(
        "replaced-by-program",
        "nothing is compiled while {detail} is replaced",
        "The compiler and torch call the original themselves, so a graph may compute something else than the program.",
        "Restore the original before the first call of compiled code. Replace the function's callers instead.",
    ),
    Reason(
        "unsupported-object",
        "the program uses an object that the tracer cannot model: {detail}",
        "The state of the object is in compiled code, where guards cannot check it.",
        "Pass the needed parts of the object as tensors or plain Python values.",
    ),
    Reason(
        "escaping-object",
        "{detail} leaves the compiled code",
        "The replacement code cannot rebuild such an object, so plain Python makes the object between two graphs.",
        "Create the object outside of the compiled function.",
    ),
    Reason(
        "unsupported-bytecode",
        "the tracer does not support a Python construct: {detail}",
        "The bytecode interpreter of the tracer has no rule for the construct.",
        "Move the construct out of the compiled function.",
    ),
    Reason(
        "unsupported-tensor",
        "the program uses an unsupported kind of tensor: {detail}",
        "No fake tensor represents the layout or the class of the tensor exactly.",
        "Convert the tensor before the call.",
    ),
    Reason(
        "inline-limit",
        "calls are nested too deeply to be inlined: {detail}",
        "Each inlined call increases the size of the graph and the tracing time.",
        "Raise the option inline_limit, or write the recursion as a loop.",
    ),
    Reason(
        "plain-python",
        "{detail} would run in plain Python",
        "fullgraph=True requires one graph of the whole call, so no part of the call may run uncompiled.",
        "Remove the cause, or remove fullgraph=True.",
    ),
    Reason(
        "tracing-error",
        "tracing failed: {detail}",
        "The tracer has a limitation or a defect. The program continues in plain Python.",
        "Please report the error with a program that reproduces it.",
    ),
    Reason(
        "internal-error",
        "internal error of fxstack-capture: {detail}",
        "The error is in the compiler, not in the program. The function that was compiled runs in plain Python.",
        "Please report the error with a program that reproduces it.",
    ),
)

REASONS: dict[str, Reason] = {reason.id: reason for reason in _REASONS}
"""All reasons by their ids."""

READS_DATA = frozenset({"data-dependent-number", "data-dependent-size", "data-dependent-value"})
"""The reasons of graph breaks at operations that read the data of tensors."""


def graph_break(
    reason_id: str, detail: str = "", stack: tuple[tuple[str, int, str], ...] = (), *, whole: object = None
) -> GraphBreak:
    """Return the exception for a registered reason. The caller raises it.

    ``detail`` is a phrase about this break. ``whole`` is the frame of a function that must run in plain
    Python as a whole (see ``GraphBreak.whole``).
    """
    reason = GraphBreak(REASONS[reason_id], detail, stack)
    reason.whole = whole
    return reason


def caller(frame: Any, depth: int = sys.maxsize) -> Any:
    """Return the interpreted frame ``depth`` calls further out than ``frame``.

    If there are fewer frames, return the outermost.
    """
    while depth > 0 and frame.back is not None:
        frame, depth = frame.back, depth - 1
    return frame
