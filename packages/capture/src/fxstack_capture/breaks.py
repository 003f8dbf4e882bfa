"""Why a graph ends: the registry of reasons, and the exception that carries one.

Every reason has an id (stable, documented in ``docs/errors/``), what happened, why it ends the graph, and
what to do about it. Raise one with ``graph_break("data-dependent-branch", detail=...)``.
"""

from __future__ import annotations

from dataclasses import dataclass

from fxstack_capture.guards.records import Guard


@dataclass(frozen=True, slots=True)
class Reason:
    """A kind of graph break. ``what`` may hold ``{detail}``."""

    id: str
    what: str
    why: str
    fix: str


@dataclass(frozen=True, slots=True)
class BreakRecord:
    """One graph break that happened: the reason and the user's frames (file, line, function), innermost last."""

    reason: Reason
    detail: str
    stack: tuple[tuple[str, int, str], ...] = ()

    @property
    def message(self) -> str:
        where = "".join(f'\n  File "{f}", line {n}, in {name}' for f, n, name in self.stack)
        what = self.reason.what.format(detail=self.detail)
        return f"[{self.reason.id}] {what}\nwhy: {self.reason.why}\nfix: {self.reason.fix}{where}"


class GraphBreak(BaseException):
    """Leaves the interpreter up to the driver; user code cannot catch it, as it cannot GeneratorExit."""

    def __init__(
        self, reason: Reason, detail: str = "", stack: tuple[tuple[str, int, str], ...] = ()
    ) -> None:
        super().__init__(reason.id, detail)
        self.record = BreakRecord(reason, detail, stack)
        self.error: Exception | None = None
        """Raised to the caller of the compiled code instead of breaking the graph."""
        self.earlier: int | None = None
        """A step of the root frame before which the graph has to end, though the trouble comes later."""
        self.path: tuple[int, ...] = ()
        """Where to stop before it: a step of the root frame, of the frame that this step calls, and so on."""
        self.below_c_code = False
        """Whether it has left a frame that C code called, which cannot be continued."""
        self.until: Guard | None = None
        """The frame runs in plain Python, with all that it calls, for as long as this holds."""
        self.is_error = False
        """Whether the program said that a break there is one (``error_on_graph_break``)."""
        self.whole: object = None
        """The frame of a function that has to run in plain Python as a whole, with all that it calls on the way here."""

    def leave(self, frame: object, step: int, *, is_linked: bool) -> None:
        """Note that it leaves a frame at its step number ``step``; see ``interpreter.stopping`` for ``is_linked``."""
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
        "The value is known only when the graph has run, so tracing cannot choose a side.",
        "Use torch.where or torch.cond, or move the branch out of the compiled function.",
    ),
    Reason(
        "data-dependent-value",
        "Python asks for the value of a tensor: {detail}",
        "The value is known only when the graph has run.",
        "Keep the number in a tensor, or set capture_scalar_outputs=True.",
    ),
    Reason(
        "handled-error",
        "{detail} may raise for the data of its tensors, and the program handles errors there",
        "The handler must run at its place, and a graph that changes its inputs cannot be taken back to it.",
        "Move the call, or what changes the inputs, out of the try block.",
    ),
    Reason(
        "unsupported-call",
        "a call of {detail} cannot be traced",
        "It is compiled code that may have effects outside of its arguments.",
        "Move the call out of the compiled function, or register it as a custom operator with torch.library.",
    ),
    Reason(
        "side-effect-call",
        "{detail} has an effect outside of the program (output, files, time, threads)",
        "The effect must happen once a call, in order, so it runs between two graphs.",
        "Move the call out of the compiled function.",
    ),
    Reason(
        "disabled",
        "{detail} is marked as not to be compiled",
        "It, or a library, asked for this with disable().",
        "Remove the annotation, or accept the break.",
    ),
    Reason(
        "disallowed",
        "{detail} must not be in a graph",
        "The program asked for it with disallow_in_graph().",
        "Remove the call of disallow_in_graph(), or accept the break.",
    ),
    Reason(
        "forbidden",
        "{detail} is called in compiled code",
        "The program has forbidden this with forbid_in_graph(), so it is an error.",
        "Call it outside of the compiled function.",
    ),
    Reason(
        "skipped-by-backend",
        "the backend asked to skip this frame: {detail}",
        "A backend may raise SkipFrame for graphs that it does not want.",
        "Nothing is wrong: the frame runs in plain Python.",
    ),
    Reason(
        "user-break", "graph_break() was called {detail}", "The program asked for it.", "Remove the call."
    ),
    Reason(
        "user-skip",
        "skip_frame() was called {detail}",
        "The program asked for it: the function runs in plain Python, what it calls is compiled.",
        "Remove the call.",
    ),
    Reason(
        "replaced-by-program",
        "nothing is compiled while {detail} is replaced",
        "What operators do to tensors then, no graph can say.",
        "Put the original back before the first call of compiled code, and wrap instead what calls it.",
    ),
    Reason(
        "unsupported-object",
        "an object that tracing cannot model is used: {detail}",
        "Its state lives in compiled code where reads cannot be guarded.",
        "Pass what is needed of it as tensors or plain Python values.",
    ),
    Reason(
        "escaping-object",
        "{detail} leaves the compiled code",
        "Compiled code cannot make such an object again, so it is made in plain Python, between two graphs.",
        "Create it outside of the compiled function.",
    ),
    Reason(
        "unsupported-bytecode",
        "Python construct not supported by the tracer: {detail}",
        "The interpreter has no rule for it yet.",
        "Move it out of the compiled function.",
    ),
    Reason(
        "unsupported-tensor",
        "a tensor of an unsupported kind: {detail}",
        "Its layout or class has no fake-tensor counterpart that is known to be exact.",
        "Convert it before the call.",
    ),
    Reason(
        "inline-limit",
        "calls are nested too deeply to be inlined: {detail}",
        "Every inlined call makes the graph and the time to trace it grow.",
        "Raise the option inline_limit, or write the recursion as a loop.",
    ),
    Reason(
        "plain-python",
        "{detail} would run in plain Python",
        "fullgraph=True asks for one graph of the whole call, so nothing of it may run uncompiled.",
        "Remove the cause, or leave fullgraph=True out.",
    ),
    Reason(
        "tracing-error",
        "tracing failed: {detail}",
        "This is a limitation or a defect of the tracer; the program continues in plain Python.",
        "Please report it with the program that shows it.",
    ),
    Reason(
        "internal-error",
        "internal error of fxstack-capture: {detail}",
        "The compiler has failed, not the program; what it was compiling runs in plain Python.",
        "Please report it with the program that shows it.",
    ),
)

REASONS: dict[str, Reason] = {reason.id: reason for reason in _REASONS}


def graph_break(reason_id: str, detail: str = "", stack: tuple[tuple[str, int, str], ...] = ()) -> GraphBreak:
    """What to raise for a registered reason: call this with its id, and say what it was about."""
    return GraphBreak(REASONS[reason_id], detail, stack)
