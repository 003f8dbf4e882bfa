"""Errors of ``emit`` that the driver handles."""

from __future__ import annotations


class CannotRebuildError(Exception):
    """Raised if a value leaves the trace and replacement code cannot rebuild the value.

    ``made_at`` is the step of the root frame that made the value, or None. The graph can end at this step.
    """

    def __init__(self, detail: str, made_at: int | None = None) -> None:
        super().__init__(detail)
        self.detail = detail
        self.made_at = made_at


class CycleError(Exception):
    """Raised if an immutable object contains itself.

    The caller makes mutable objects empty and fills the objects later.
    """


class CannotResumeError(Exception):
    """Raised if no resume function can continue a frame from its stop. The message gives the reason."""
