"""What emit cannot do, told to the driver."""

from __future__ import annotations


class CannotRebuildError(Exception):
    """A value leaves the trace that code cannot make again: the driver lets the frame run in plain Python."""

    def __init__(self, what: str) -> None:
        super().__init__(what)
        self.what = what


class CycleError(Exception):
    """An immutable object was met inside itself: build mutable objects empty and fill them later."""


class CannotResumeError(Exception):
    """A frame cannot be continued from where it stopped; says why."""
