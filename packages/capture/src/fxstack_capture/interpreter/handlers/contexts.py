"""``with`` statements."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from fxstack_capture.interpreter.frame import Frame


def before_with(frame: Frame, _operand: Any) -> None:
    """Replace the manager by its ``__exit__``, and push what ``__enter__`` gives."""
    stack = frame.stack
    manager = stack[-1]
    described = f"'{type(manager).__name__}' object does not support the context manager protocol"
    enter = _special(frame, manager, "__enter__", described)
    leave = _special(frame, manager, "__exit__", described + " (missed __exit__ method)")
    stack[-1] = leave
    stack.append(frame.calls.call_linked(enter, (), {}))


def _special(frame: Frame, manager: Any, name: str, missing: str) -> Any:
    try:
        return frame.world.load_special(manager, name)
    except AttributeError as error:
        frame.interp.dealt_with(error)
    raise TypeError(missing)


def with_except_start(frame: Frame, _operand: Any) -> None:
    """Call ``__exit__`` with the exception; its result decides whether the exception is
    swallowed.
    """
    stack = frame.stack
    exception = stack[-1]
    args = (type(exception), exception, exception.__traceback__)
    stack.append(frame.calls.call(stack[-4], args, {}))
