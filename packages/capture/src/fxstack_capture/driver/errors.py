"""Exceptions and warnings that users of capture see."""

from __future__ import annotations

from fxstack_capture.breaks import BreakRecord, graph_break
from fxstack_capture.guards.explain import GuardFailure


class Unsupported(RuntimeError):  # noqa: N818 - the name that users of torch.compile know
    """The caller requested one whole graph, and the program cannot be captured as one.

    ``record`` has the reason.
    """

    def __init__(self, record: BreakRecord) -> None:
        super().__init__(record.message)
        self.record = record


class GuardError(RuntimeError):
    """The guards of a captured graph reject a call. ``failure`` has the failed guard."""

    def __init__(self, name: str, failure: GuardFailure, captured: str) -> None:
        super().__init__(
            f"this call of {name} is not like the call that was captured: {failure.message}\n"
            f"captured: {captured}\n"
            "why: the graph of another call may be another one, so running this graph could give a wrong result.\n"
            "fix: capture again with these arguments; or use export(fn, args, dynamic_shapes=...) for one graph of many sizes, "
            "or optimize(fn), which captures whatever a call needs."
        )
        self.failure = failure


class BackendError(RuntimeError):
    """The backend raised while it compiled a captured graph."""

    def __init__(self, backend: str, where: str, error: BaseException) -> None:
        super().__init__(
            f"backend {backend} failed on the graph captured from {where}:"
            f" {type(error).__name__}: {error}\n"
            "fix: this is an error of the backend, not of capture; run with backend='eager' to go on without it."
        )
        self.backend = backend


class SkipFrame(Exception):  # noqa: N818 - a request, not an error
    """A backend raises this exception to request that the frame of its graph runs in plain Python."""


class ComptimeError(RuntimeError):
    """Code given to ``comptime`` raised an exception, which is the cause of this error."""


class WrongResultError(RuntimeError):
    """``verify_correctness`` found that results of the compiled code and of the graph differ."""


class RecompileLimitError(RuntimeError):
    """``fail_on_recompile_limit`` is set, and a function has reached ``recompile_limit`` entries."""


class RecompileError(RuntimeError):
    """No entry fits a call, and an option or a stance forbids compiling.

    The option is ``error_on_recompile``, the stance ``set_stance("fail_on_recompile")``.
    """


class TracingWarning(UserWarning):
    """A frame runs in plain Python because tracing failed in a way that the program did not cause."""


def plain(why: str) -> Unsupported:
    """The error that ``fullgraph=True`` raises instead of running a frame in plain Python."""
    return Unsupported(graph_break("plain-python", why).record)


def graph_error(error: Exception) -> Unsupported:
    """The error for an internal error when the caller requested one whole graph."""
    return Unsupported(graph_break("internal-error", f"{type(error).__name__}: {error}").record)
