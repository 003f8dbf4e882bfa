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
"""The reasons of graph breaks that cause a warning, because the user can change the program or the backend."""


@dataclass(slots=True)
class Mistakes:
    """The internal errors that have been reported. Each error is reported only once.

    The same error often occurs again in callees of the function.
    """

    said: set[str] = field(default_factory=set)
    """The texts of the errors that have been reported."""

    def warn(self, code: CodeType, error: str) -> None:
        """Warn that a function runs in plain Python because tracing it failed with ``error``."""
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
        """Warn of a graph break if the user can do something about it.

        Such breaks are internal errors, and limits of the backend. ``FrameCompiler`` calls this for each
        graph break. ``code`` is the function that the warning names.
        """
        if record.reason.id == "internal-error":
            self.warn(code, record.detail)
            return
        if record.reason.id in _WARNED_REASONS and record.detail not in self.said:
            self.said.add(record.detail)
            _warn(code, f"{record.message}\n{code.co_qualname}, or a part of it, runs in plain Python.")


@dataclass(slots=True)
class UnconfirmedError:
    """Reports an error of the compiler: the trace ended with an exception that plain Python does not raise.

    The frame's entry calls this object when plain Python has raised nothing. Only the traced call counts,
    because other calls may have other numbers.
    """

    code: CodeType
    """The code of the frame. The warning names it."""
    error: str
    """The exception that ended the trace, as text."""
    fatal: bool
    """Whether the call raises an error. It does if the caller requested one whole graph."""
    mistakes: Mistakes
    """The error reports of the compiler."""
    note: Callable[[str], None]
    """A function that gets the text, for the record of the frame."""
    entry: Any = None
    """The native entry that runs the frame. None before ``entered``."""

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
    """Warn at the first line of the program's function."""
    warnings.warn_explicit(text, TracingWarning, code.co_filename, code.co_firstlineno)
