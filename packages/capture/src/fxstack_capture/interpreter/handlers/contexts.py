"""``with`` statements."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from fxstack_capture.interpreter.handlers.attributes import special_method
from fxstack_capture.interpreter.values import NULL

if TYPE_CHECKING:
    from fxstack_capture.interpreter.frame import Frame


def before_with(frame: Frame, _operand: Any) -> None:
    """Replace the manager by its ``__exit__``, and push what ``__enter__`` gives."""
    stack = frame.stack
    manager = stack[-1]
    described = f"'{type(manager).__name__}' object does not support the context manager protocol"
    enter = special_method(frame, manager, "__enter__")
    if enter is NULL:
        raise TypeError(described)
    leave = special_method(frame, manager, "__exit__")
    if leave is NULL:
        raise TypeError(described + " (missed __exit__ method)")
    stack[-1] = leave
    stack.append(frame.calls.call(enter, (), {}))


def with_except_start(frame: Frame, _operand: Any) -> None:
    """Call ``__exit__`` with the exception; its result decides whether the exception is
    swallowed.
    """
    stack = frame.stack
    exception = stack[-1]
    args = (type(exception), exception, exception.__traceback__)
    stack.append(frame.calls.call(stack[-4], args, {}))
