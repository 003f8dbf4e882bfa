"""``with`` statements."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from fxstack_capture.interpreter.values import NULL

if TYPE_CHECKING:
    from fxstack_capture.interpreter.frame import Frame


def before_with(frame: Frame, _operand: Any) -> None:
    """Replace the manager by its ``__exit__``, and push what ``__enter__`` gives."""
    stack = frame.stack
    manager = stack[-1]
    enter = _special(frame, manager, "__enter__")
    leave = _special(frame, manager, "__exit__")
    stack[-1] = leave
    stack.append(frame.calls.call_linked(enter, (), {}))


def load_special(frame: Frame, name: str) -> None:
    """3.14: the bound method and a NULL, in the place of the manager."""
    frame.stack[-1:] = [_special(frame, frame.stack[-1], name), NULL]


def _special(frame: Frame, manager: Any, name: str) -> Any:
    try:
        return frame.world.load_special(manager, name)
    except AttributeError as error:
        frame.interp.dealt_with(error)
    kind, missing = type(manager).__name__, " (missed __exit__ method)" * (name == "__exit__")
    raise TypeError(f"'{kind}' object does not support the context manager protocol{missing}")


def with_except_start(frame: Frame, _operand: Any) -> None:
    """Call ``__exit__`` with the exception; its result decides whether the exception is
    swallowed.
    """
    _exit(frame, -4)


def with_except_start_above_null(frame: Frame, _operand: Any) -> None:
    """3.14: there is a NULL above ``__exit__``."""
    _exit(frame, -5)


def _exit(frame: Frame, place: int) -> None:
    stack = frame.stack
    exception = stack[-1]
    args = (type(exception), exception, exception.__traceback__)
    stack.append(frame.calls.call(stack[place], args, {}))
