"""What an exception is chained to and where it was raised, set as CPython sets it: not by the class's own ``__setattr__``."""

from __future__ import annotations

from types import TracebackType

_set_cause = BaseException.__dict__["__cause__"].__set__
_set_context = BaseException.__dict__["__context__"].__set__
_set_traceback = BaseException.__dict__["__traceback__"].__set__


def set_cause(error: BaseException, cause: BaseException | None) -> None:
    """``raise error from cause``."""
    _set_cause(error, cause)


def set_context(error: BaseException, context: BaseException | None) -> None:
    """The exception that was handled when ``error`` was raised."""
    _set_context(error, context)


def set_traceback(error: BaseException, traceback: TracebackType | None) -> None:
    """The frames that ``error`` has come through."""
    _set_traceback(error, traceback)
