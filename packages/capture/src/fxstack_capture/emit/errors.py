"""What emit cannot do, told to the driver."""

from __future__ import annotations


class CannotRebuildError(Exception):
    """A value leaves the trace that code cannot make again.

    ``made_at`` is the step of the root frame during which it was made, if that is known: the graph can end there.
    """

    def __init__(self, what: str, made_at: int | None = None) -> None:
        super().__init__(what)
        self.what = what
        self.made_at = made_at


class CycleError(Exception):
    """An immutable object was met inside itself: build mutable objects empty and fill them later."""


class CannotResumeError(Exception):
    """A frame cannot be continued from where it stopped; says why."""
