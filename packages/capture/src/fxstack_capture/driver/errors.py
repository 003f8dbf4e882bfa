"""Errors that a user of capture sees."""

from __future__ import annotations

from fxstack_capture.breaks import BreakRecord, graph_break
from fxstack_capture.guards.explain import GuardFailure


class Unsupported(RuntimeError):  # noqa: N818 - the name that users of torch.compile know
    """One whole graph was asked for and cannot be had. ``record`` says why as data."""

    def __init__(self, record: BreakRecord) -> None:
        super().__init__(record.message)
        self.record = record


class GuardError(RuntimeError):
    """A captured graph was called in a way that it is not for. ``failure`` has the guard that does not hold."""

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
    """A backend raises this to say that the frame of the graph it was given should run in plain Python."""


class ComptimeError(RuntimeError):
    """Code given to ``comptime`` raised an exception, which is its cause."""


class WrongResultError(RuntimeError):
    """``verify_correctness`` found that compiled code and graph disagree."""


class RecompileLimitError(RuntimeError):
    """``fail_on_recompile_limit`` was set and a function reached ``recompile_limit`` entries."""


class RecompileError(RuntimeError):
    """What is compiled does not fit a call, and ``error_on_recompile`` or ``set_stance("fail_on_recompile")`` forbids more."""


class TracingWarning(UserWarning):
    """A frame runs in plain Python because tracing it failed in a way that is not the program's doing."""


def plain(why: str) -> Unsupported:
    """What is raised instead of running a frame in plain Python, under ``fullgraph=True``."""
    return Unsupported(graph_break("plain-python", why).record)


def graph_error(error: Exception) -> Unsupported:
    """An internal error where one whole graph was asked for."""
    return Unsupported(graph_break("internal-error", f"{type(error).__name__}: {error}").record)
