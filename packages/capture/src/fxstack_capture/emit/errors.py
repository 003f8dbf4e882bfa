"""Errors of ``emit`` that the driver handles."""

from __future__ import annotations


class CannotRebuildError(Exception):
    """Raised if a value leaves the trace and replacement code cannot rebuild the value.

    ``made_at`` is the step of the root frame that made the value (``Interpreter.root_step``), or None. The driver
    then ends the graph before this step in the next attempt.
    """

    def __init__(self, detail: str, made_at: int | None = None) -> None:
        super().__init__(detail)
        self.detail = detail
        self.made_at = made_at


class CycleError(Exception):
    """Raised if an immutable object contains itself.

    ``with_cycles`` then writes the draft again. Mutable objects are made empty and filled later.
    """


class CannotResumeError(Exception):
    """Raised if no resume function can continue a frame from its stop.

    The message gives the reason. The driver decides how the frame is traced instead
    (``driver.attempts.outcomes``).
    """
