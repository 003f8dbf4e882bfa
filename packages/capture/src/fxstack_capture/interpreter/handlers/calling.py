"""Calls, and the creation of functions."""

from __future__ import annotations

import typing
from types import CellType, CodeType, FunctionType
from typing import Any

from fxstack_capture.bytecode.null import NULL
from fxstack_capture.interpreter.exceptions.errors import callable_description
from fxstack_capture.interpreter.frame import Frame
from fxstack_capture.interpreter.handlers.containers import is_iterable


def call(frame: Frame, count: int) -> None:
    """Call a callable. The stack holds, from the bottom, two slots and the arguments.

    In 3.11 and 3.12, the slots are NULL and the callable, or the method and ``self``. From 3.13 on, they are
    the callable and NULL, or the method and ``self``.
    """
    stack = frame.stack
    if count:
        args = tuple(stack[-count:])
        del stack[-count:]
    else:
        args = ()
    second = stack.pop()
    first = stack.pop()
    if first is NULL:
        first = second
    elif second is not NULL:
        args = (second, *args)
    stack.append(frame.calls.call_linked(first, args, {}))


def call_with_names(frame: Frame, operand: tuple[int, tuple[str, ...]]) -> None:
    """Call with keyword arguments (Python 3.11 and 3.12).

    ``operand`` contains the number of arguments, and the names of the last arguments.
    """
    count, names = operand
    stack = frame.stack
    values = stack[-count:]
    del stack[-count:]
    split = count - len(names)
    args = tuple(values[:split])
    second = stack.pop()
    first = stack.pop()
    if first is NULL:
        first = second
    elif second is not NULL:
        args = (second, *args)
    stack.append(frame.calls.call_linked(first, args, dict(zip(names, values[split:], strict=True))))


def call_kw(frame: Frame, count: int) -> None:
    """Call with keyword arguments (from Python 3.13 on). Their names are a tuple on top of the stack."""
    names = frame.stack.pop()
    call_with_names(frame, (count, names))


def call_function_ex_above_null(frame: Frame, _operand: int) -> None:
    """Call with ``*args`` and ``**kwargs`` (Python 3.14). The stack slot of ``kwargs`` always exists and may
    be NULL.
    """
    named = frame.stack[-1] is not NULL
    if not named:
        frame.stack.pop()
    call_function_ex(frame, int(named))


def call_function_ex(frame: Frame, flags: int) -> None:
    """Call a function with unpacked ``*args`` and, if bit 0 of ``flags`` is set, ``**kwargs``."""
    stack = frame.stack
    kwargs = stack.pop() if flags & 1 else {}
    args = stack.pop()
    second = stack.pop()
    first = stack.pop()
    fn = second if first is NULL else first
    if type(args) is not tuple:
        if not is_iterable(args):
            described = callable_description(fn)
            name = type(args).__name__
            raise TypeError(f"{described} argument after * must be an iterable, not {name}")
        args = frame.calls.call(tuple, (args,), {})
    frame.objects.expand(kwargs)  # ``kwargs`` may be a lazy dictionary that comes from before a graph break
    stack.append(frame.calls.call_linked(fn, args, kwargs))


# --- functions -----------------------------------------------------------------------------------


def _new_function(
    frame: Frame, code: CodeType, defaults: tuple[Any, ...] | None, closure: Any
) -> FunctionType:
    """Create a function for ``def`` or ``lambda``, and record it as an object of the trace."""
    fn = FunctionType(code, frame.globals, code.co_name, defaults, closure)
    frame.objects.note_new(fn)
    return fn


def make_function(frame: Frame, flags: int) -> None:
    """Create a function with its defaults and closure (Python 3.11 and 3.12).

    The flags say which of these are on the stack: closure, annotations, keyword defaults, defaults.
    """
    stack = frame.stack
    code = stack.pop()
    closure = stack.pop() if flags & 8 else None
    annotations = stack.pop() if flags & 4 else None
    kwdefaults = stack.pop() if flags & 2 else None
    defaults = stack.pop() if flags & 1 else None
    fn = _new_function(frame, code, defaults, closure)
    if kwdefaults is not None:
        fn.__kwdefaults__ = kwdefaults
    if annotations is not None:
        fn.__annotations__ = _annotations(annotations)
    stack.append(fn)


def _annotations(pairs: Any) -> dict[str, Any]:
    """Return annotations as a dictionary. ``pairs`` is the compiler's flat tuple (name, value, name, value,
    ...).
    """
    if isinstance(pairs, dict):
        return pairs
    return dict(zip(pairs[::2], pairs[1::2], strict=True))


def make_plain_function(frame: Frame, _operand: object) -> None:
    """Create a function without attributes (from Python 3.13 on). SET_FUNCTION_ATTRIBUTE sets them later."""
    code = frame.stack.pop()
    # FunctionType requires a closure of the right length, so empty cells take its place.
    closure = tuple(CellType() for _ in code.co_freevars) or None
    frame.stack.append(_new_function(frame, code, None, closure))


def set_function_attribute(frame: Frame, flag: int) -> None:
    """Set the attribute of a new function that ``flag`` selects: defaults, annotations or closure."""
    fn = frame.stack.pop()
    value = frame.stack[-1]
    if flag == 8:
        # The closure of a function cannot be replaced, so create the function again. The compiler sets the
        # closure first, so no other attribute is lost.
        fn = _new_function(frame, fn.__code__, None, value)
    elif flag == 16:
        fn.__annotate__ = value  # since Python 3.14
    elif flag == 4:
        fn.__annotations__ = _annotations(value)
    elif flag == 2:
        fn.__kwdefaults__ = value
    else:
        fn.__defaults__ = value
    frame.stack[-1] = fn


# --- type parameters -----------------------------------------------------------------------------


def subscript_generic(frame: Frame, _operand: object) -> None:
    """Replace a tuple of type parameters by ``Generic[T]`` (from Python 3.12 on). ``class C[T]`` has this
    base.
    """
    frame.stack[-1] = typing.Generic[frame.stack[-1]]  # type: ignore[index]


def set_function_type_params(frame: Frame, _operand: object) -> None:
    """Set ``__type_params__`` of a generic function ``def f[T]()`` (from Python 3.12 on)."""
    parameters = frame.stack.pop()
    frame.objects.store_attr(frame.stack[-1], "__type_params__", parameters)
