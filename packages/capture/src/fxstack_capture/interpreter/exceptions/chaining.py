"""Set the cause, context and traceback of an exception as CPython does.

CPython does not call the ``__setattr__`` of the exception's class.
"""

from __future__ import annotations

from types import TracebackType

_set_cause = BaseException.__dict__["__cause__"].__set__
_set_context = BaseException.__dict__["__context__"].__set__
_set_traceback = BaseException.__dict__["__traceback__"].__set__


def set_cause(error: BaseException, cause: BaseException | None) -> None:
    """Set ``__cause__``, as ``raise error from cause`` does."""
    _set_cause(error, cause)


def set_context(error: BaseException, context: BaseException | None) -> None:
    """Set ``__context__``: the exception that was being handled when ``error`` was raised."""
    _set_context(error, context)


def set_traceback(error: BaseException, traceback: TracebackType | None) -> None:
    """Set ``__traceback__``: the frames through which ``error`` has passed."""
    _set_traceback(error, traceback)
