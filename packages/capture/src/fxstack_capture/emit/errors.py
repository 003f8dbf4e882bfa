"""Errors of ``emit`` that the driver handles."""

from __future__ import annotations


class CannotRebuildError(Exception):
    """Raised if a value leaves the trace and replacement code cannot rebuild the value.

    ``made_at`` is the step of the root frame that made the value (``Interpreter.root_step``), or None. In the
    next attempt, the driver ends the graph before this step.
    """

    def __init__(self, detail: str, made_at: int | None = None) -> None:
        super().__init__(detail)
        self.detail = detail
        self.made_at = made_at


class CycleError(Exception):
    """Raised if an immutable object contains itself.

    ``with_cycles`` handles the error: it writes the draft a second time. In this draft, mutable objects are
    made empty and filled later.
    """


class CannotResumeError(Exception):
    """Raised if no resume function can continue a stopped frame.

    The message gives the reason. The driver then decides how to trace the frame
    (``driver.attempts.outcomes``).
    """
