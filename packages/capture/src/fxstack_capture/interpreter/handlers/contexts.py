"""``with`` statements."""

from __future__ import annotations

from typing import Any

from fxstack_capture.bytecode.null import NULL
from fxstack_capture.interpreter.frame import Frame


def before_with(frame: Frame, _operand: object) -> None:
    """Begin a ``with`` block: replace the manager by its ``__exit__``, and push the result of ``__enter__``."""
    stack = frame.stack
    manager = stack[-1]
    described = f"'{type(manager).__name__}' object does not support the context manager protocol"
    enter = _special(frame, manager, "__enter__", described)
    leave = _special(frame, manager, "__exit__", described + " (missed __exit__ method)")
    stack[-1] = leave
    stack.append(frame.calls.call_linked(enter, (), {}))


def load_special(frame: Frame, name: str) -> None:
    """Replace a context manager by its bound method ``name`` and a NULL (Python 3.14).

    ``name`` is ``__enter__`` or ``__exit__``. A ``with`` statement has one such step for each method.
    """
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
    """Return the qualified name of a class. Its module precedes the name unless it is ``builtins`` or
    ``__main__``.

    Messages of Python 3.14 contain this name (``load_special``).
    """
    plain = cls.__module__ in {"builtins", "__main__"}
    return cls.__qualname__ if plain else f"{cls.__module__}.{cls.__qualname__}"


def _special(frame: Frame, manager: object, name: str, missing: str) -> Any:
    """Return the bound method ``name`` (``__enter__`` or ``__exit__``), looked up in the class of
    ``manager``.

    Raises TypeError with the text ``missing`` if the class lacks the method.
    """
    try:
        return frame.objects.load_special(manager, name)
    except AttributeError as error:
        frame.interp.dealt_with(error)
    raise TypeError(missing)


def with_except_start(frame: Frame, _operand: object) -> None:
    """Call ``__exit__`` with the exception, and push the result. A true result suppresses the exception."""
    _exit(frame, -4)


def with_except_start_above_null(frame: Frame, _operand: object) -> None:
    """Call ``__exit__`` as ``with_except_start`` does (Python 3.14). A NULL lies above the method on the
    stack.
    """
    _exit(frame, -5)


def _exit(frame: Frame, position: int) -> None:
    """Call the method at ``stack[position]`` with the exception on top of the stack, and push the result."""
    stack = frame.stack
    exception = stack[-1]
    args = (type(exception), exception, exception.__traceback__)
    stack.append(frame.calls.call(stack[position], args, {}))
