"""Exceptions and warnings that users of capture see."""

from __future__ import annotations

from typing import Final

from fxstack_capture.breaks import READS_DATA, BreakRecord, graph_break
from fxstack_capture.guards.explain import GuardFailure
from fxstack_capture.guards.records import TorchStateIs
from fxstack_interchange.torch_facts.torch_errors import CompilerError, torch_error_types


class Unsupported(CompilerError, of_torch="Unsupported"):  # noqa: N818 - the name that users of torch.compile know
    """The caller requested one whole graph, but the program cannot be captured as one.

    ``record`` has the reason. The other attributes exist for programs that expect torch's exception.
    """

    def __init__(self, record: BreakRecord) -> None:
        super().__init__(record.message)
        self.record = record
        self.msg = record.message
        self.real_stack = record.summary
        self.gb_type = record.reason.id
        self.case_name: str | None = None
        self.skip_frame = False


class DataDependentError(Unsupported, of_torch="UserError"):
    """Python needs the value of a tensor.

    For numbers from tensors, torch has an error class of its own, which this class imitates.
    """

    @property
    def message(self) -> str:
        """The text, by the name of this attribute in torch's error."""
        return self.msg

    @property
    def error_type(self) -> object:
        """The member of torch's enumeration. None as long as torch's module is not loaded."""
        return next((kinds.DYNAMIC_CONTROL_FLOW for kinds in torch_error_types("UserErrorType")), None)


class OperatorError(Unsupported, of_torch="UncapturedHigherOrderOpError"):
    """A function that an operator calls, such as ``torch.cond``, is not one graph without effects."""


class InternalError(Unsupported, of_torch="InternalTorchDynamoError"):
    """The compiler failed, and the caller requested one whole graph."""


class GuardError(RuntimeError):
    """The guards of a captured graph reject a call. ``failure`` describes the failed guard."""

    def __init__(self, name: str, failure: GuardFailure, captured: str) -> None:
        super().__init__(
            f"this call of {name} is not like the call that was captured: {failure.message}\n"
            f"captured: {captured}\n"
            "why: the graph of another call may be another one, so running this graph could give a wrong result.\n"
            f"fix: {_fix(failure)}"
        )
        self.failure = failure


def _fix(failure: GuardFailure) -> str:
    """Return the text after "fix:" for the error of a captured graph whose guard rejects a call."""
    if failure.guard is not None and isinstance(failure.guard.check, TorchStateIs):
        return (
            "call it in the state of torch in which it was captured, or capture again in this state; a mode that only "
            "watches operators (FlopCounterMode) belongs around the program itself, or around a call of graph_module."
        )
    return (
        "capture again with these arguments; or use export(fn, args, dynamic_shapes=...) for one graph of many sizes, "
        "or optimize(fn), which captures whatever a call needs."
    )


class BackendError(CompilerError, of_torch="BackendCompilerFailed"):
    """The backend raised ``inner_exception`` while it compiled a captured graph."""

    def __init__(self, backend: str, where: str, error: BaseException) -> None:
        super().__init__(
            f"backend {backend} failed on the graph captured from {where}:"
            f" {type(error).__name__}: {error}\n"
            "fix: this is an error of the backend, not of capture; run with backend='eager' to go on without it."
        )
        self.backend = self.backend_name = backend
        self.inner_exception = error


class SkipFrame(CompilerError, of_torch="SkipFrame"):  # noqa: N818 - a request, not an error
    """A backend raises this exception so that the frame of its graph runs in plain Python."""


class ComptimeError(CompilerError, of_torch="InternalTorchDynamoError"):
    """Code that was passed to ``comptime`` raised an exception. It is the cause of this error."""


class WrongResultError(RuntimeError):
    """``verify_correctness`` found that results of the compiled code and of the graph differ."""


class RecompileLimitError(CompilerError, of_torch="FailOnRecompileLimitHit"):
    """``fail_on_recompile_limit`` is set, and a function has reached ``recompile_limit`` entries."""


class RecompileError(CompilerError, of_torch="RecompileError"):
    """No entry fits a call, but an option or a stance forbids compiling.

    The option is ``error_on_recompile``, the stance ``set_stance("fail_on_recompile")``.
    """


class TracingWarning(UserWarning):
    """A frame runs in plain Python because tracing failed in a way that the program did not cause."""


def unsupported(record: BreakRecord) -> Unsupported:
    """Return the error for a graph break that the caller forbids. ``_CLASSES`` has the class for the reason."""
    return _CLASSES.get(record.reason.id, Unsupported)(record)


_CLASSES: Final[dict[str, type[Unsupported]]] = {
    **dict.fromkeys(("data-dependent-branch", *READS_DATA), DataDependentError),
    "operator-function": OperatorError,
    "internal-error": InternalError,
}
"""Maps the id of a reason to the class of the error. For all other reasons, the class is ``Unsupported``."""


def plain(why: str) -> Unsupported:
    """Return the error that ``fullgraph=True`` raises if a frame would run in plain Python.

    ``why`` is the subject of the sentence "... would run in plain Python".
    """
    return unsupported(graph_break("plain-python", why).record)


def graph_error(error: Exception) -> Unsupported:
    """Return the error for an internal error of the compiler if the caller requested one whole graph."""
    return unsupported(graph_break("internal-error", f"{type(error).__name__}: {error}").record)
