"""Reports of internal errors of the compiler. Each error is reported once, with the program's function."""

from __future__ import annotations

import warnings
from collections.abc import Callable
from dataclasses import dataclass, field
from types import CodeType
from typing import Any

from fxstack_capture.breaks import BreakRecord, graph_break
from fxstack_capture.driver.errors import TracingWarning, unsupported

_WARNED_REASONS = frozenset({"unsupported-by-backend", "fake-function", "debugger"})
"""Graph breaks that cause a warning, because the user can change the program or the backend."""


@dataclass(slots=True)
class Mistakes:
    """The internal errors that were reported, so that each is reported once.

    The same error often occurs again in callees of the function.
    """

    said: set[str] = field(default_factory=set)
    """The texts of the errors that were reported."""

    def warn(self, code: CodeType, error: str) -> None:
        """Warn that tracing a function of the program failed with ``error``, so that it runs in plain Python."""
        if error in self.said:
            return
        self.said.add(error)
        name = f"{code.co_qualname} ({code.co_filename}:{code.co_firstlineno})"
        _warn(
            code,
            f"internal error of fxstack-capture while tracing {name}: {error}; it runs in plain Python."
            " Please report this with the program.",
        )

    def warn_of_suppressed(self, code: CodeType, error: Exception) -> None:
        """Warn that a function runs in plain Python because of an error that ``suppress_errors`` suppresses."""
        if str(error) not in self.said:
            self.said.add(str(error))
            _warn(code, f"{error}\nsuppress_errors is set, so {code.co_qualname} runs in plain Python.")

    def warn_if_mistake(self, code: CodeType, record: BreakRecord) -> None:
        """Warn if the user can do something about a graph break: an internal error, or a limit of the backend.

        ``FrameCompiler`` calls this for each graph break. ``code`` is the function that the warning names.
        """
        if record.reason.id == "internal-error":
            self.warn(code, record.detail)
            return
        if record.reason.id in _WARNED_REASONS and record.detail not in self.said:
            self.said.add(record.detail)
            _warn(code, f"{record.message}\n{code.co_qualname}, or a part of it, runs in plain Python.")


@dataclass(slots=True)
class UnconfirmedError:
    """Reports a trace that ended with an exception which plain Python does not raise: an error of the compiler.

    The entry of the frame calls the object when plain Python has raised nothing. ``fatal``: raise an error,
    because the caller requested one whole graph. ``note`` records the text. Only the traced call counts,
    because other calls may hold other numbers.
    """

    code: CodeType
    """The code of the frame, which the warning names."""
    error: str
    """The exception with which the trace ended, as text."""
    fatal: bool
    """Whether a call raises an error, because the caller requested one whole graph."""
    mistakes: Mistakes
    """The reports of the compiler, which warn once."""
    note: Callable[[str], None]
    """Is called with the text, for the record of the frame."""
    entry: Any = None
    """The native entry that runs the frame, or None before ``entered``."""

    def entered(self, entry: object) -> Any:
        """Set the native entry that runs the frame, and return it."""
        self.entry = entry
        return entry

    def __call__(self) -> None:
        if self.entry is not None and self.entry.hits > 1:
            return
        what = f"{self.error}, which plain Python does not raise"
        if self.fatal:
            raise unsupported(graph_break("internal-error", what).record)
        self.note(what)
        self.mistakes.warn(self.code, what)


def _warn(code: CodeType, text: str) -> None:
    """Warn at the first line of a function of the program."""
    warnings.warn_explicit(text, TracingWarning, code.co_filename, code.co_firstlineno)
