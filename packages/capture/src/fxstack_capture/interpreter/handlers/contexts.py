"""``with`` statements."""

from __future__ import annotations

from typing import Any

from fxstack_capture.bytecode.null import NULL
from fxstack_capture.interpreter.frame import Frame


def before_with(frame: Frame, _operand: object) -> None:
    """Replace the manager by its ``__exit__``, and push the result of ``__enter__``."""
    stack = frame.stack
    manager = stack[-1]
    described = f"'{type(manager).__name__}' object does not support the context manager protocol"
    enter = _special(frame, manager, "__enter__", described)
    leave = _special(frame, manager, "__exit__", described + " (missed __exit__ method)")
    stack[-1] = leave
    stack.append(frame.calls.call_linked(enter, (), {}))


def load_special(frame: Frame, name: str) -> None:
    """Replace a context manager by its bound special method and a NULL (Python 3.14)."""
    manager = frame.stack[-1]
    kind = type(manager)
    other = hasattr(kind, "__aenter__") and hasattr(kind, "__aexit__")
    missing = (
        f"'{_full_name(kind)}' object does not support the context manager protocol"
        f" (missed {name} method){_ASYNCHRONOUS if other else ''}"
    )
    frame.stack[-1:] = [_special(frame, manager, name, missing), NULL]


_ASYNCHRONOUS = (
    " but it supports the asynchronous context manager protocol. Did you mean to use 'async with'?"
)


def _full_name(cls: type) -> str:
    """Return the name of a class, as ``PyType_GetFullyQualifiedName`` returns it."""
    plain = cls.__module__ in {"builtins", "__main__"}
    return cls.__qualname__ if plain else f"{cls.__module__}.{cls.__qualname__}"


def _special(frame: Frame, manager: object, name: str, missing: str) -> Any:
    """Load ``__enter__`` or ``__exit__`` of a context manager's class.

    Raise TypeError with the text ``missing`` if absent.
    """
    try:
        return frame.objects.load_special(manager, name)
    except AttributeError as error:
        frame.interp.dealt_with(error)
    raise TypeError(missing)


def with_except_start(frame: Frame, _operand: object) -> None:
    """Call ``__exit__`` with the exception. The result decides whether the exception is suppressed."""
    _exit(frame, -4)


def with_except_start_above_null(frame: Frame, _operand: object) -> None:
    """Call ``__exit__`` as ``with_except_start`` does. In Python 3.14, a NULL lies above the method."""
    _exit(frame, -5)


def _exit(frame: Frame, position: int) -> None:
    """Call ``__exit__`` with the exception on top of the stack. ``position`` is the stack index of the method."""
    stack = frame.stack
    exception = stack[-1]
    args = (type(exception), exception, exception.__traceback__)
    stack.append(frame.calls.call(stack[position], args, {}))
