"""What is said of errors of the compiler's own: each once, with the program's function and the error."""

from __future__ import annotations

import warnings
from collections.abc import Callable
from dataclasses import dataclass, field
from types import CodeType
from typing import Any

from fxstack_capture.breaks import BreakRecord, graph_break
from fxstack_capture.driver.errors import TracingWarning, Unsupported


@dataclass(slots=True)
class Mistakes:
    """The errors that were met. The same one is often met again, in what the function calls."""

    said: set[str] = field(default_factory=set)

    def warn(self, code: CodeType, what: str) -> None:
        """Warn that tracing a function of the program has failed by ``what``, and that it runs in plain Python."""
        if what in self.said:
            return
        self.said.add(what)
        name = f"{code.co_qualname} ({code.co_filename}:{code.co_firstlineno})"
        warnings.warn(
            f"internal error of fxstack-capture while tracing {name}: {what}; it runs in plain Python."
            " Please report this with the program.",
            TracingWarning,
            stacklevel=3,
        )

    def warn_if_mistake(self, code: CodeType, record: BreakRecord) -> None:
        """Warn where a graph ends because of an error of ours."""
        if record.reason.id == "internal-error":
            self.warn(code, record.detail)


@dataclass(slots=True)
class UnconfirmedError:
    """Called where the trace of a frame has ended with an exception, and plain Python has raised none.

    ``fatal``: it is an error, since one whole graph was asked for. ``note`` writes down what was found.
    Only the call that was traced tells: another one may hold other numbers.
    """

    code: CodeType
    error: str
    fatal: bool
    mistakes: Mistakes
    note: Callable[[str], None]
    entry: Any = None
    """The native entry that runs the frame."""

    def entered(self, entry: object) -> Any:
        """``entry``, which from now on is known to run the frame."""
        self.entry = entry
        return entry

    def __call__(self) -> None:
        if self.entry is not None and self.entry.hits > 1:
            return
        what = f"{self.error}, which plain Python does not raise"
        if self.fatal:
            raise Unsupported(graph_break("internal-error", what).record)
        self.note(what)
        self.mistakes.warn(self.code, what)
