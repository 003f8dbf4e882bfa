"""Attribute access, also through ``super()``, and the look-up of special methods on types."""

from __future__ import annotations

import builtins
from types import FunctionType, MethodType
from typing import TYPE_CHECKING, Any

from fxstack_capture.interpreter.values import NULL

if TYPE_CHECKING:
    from fxstack_capture.interpreter.frame import Frame


def load_attr(frame: Frame, name: str) -> None:
    stack = frame.stack
    stack[-1] = frame.world.load_attr(stack[-1], name)


def load_method_null_below(frame: Frame, name: str) -> None:
    """3.11, 3.12. A bound method is left whole: NULL and the method are as good as function and
    self.
    """
    stack = frame.stack
    stack[-1:] = (NULL, frame.world.load_attr(stack[-1], name))


def load_method_null_above(frame: Frame, name: str) -> None:
    """3.13."""
    stack = frame.stack
    stack[-1:] = (frame.world.load_attr(stack[-1], name), NULL)


def store_attr(frame: Frame, name: str) -> None:
    stack = frame.stack
    obj = stack.pop()
    frame.world.store_attr(obj, name, stack.pop())


def delete_attr(frame: Frame, name: str) -> None:
    frame.world.delete_attr(frame.stack.pop(), name)


def _super_attr(frame: Frame, name: str, *, explicit: bool) -> Any:
    """``super().name`` or ``super(cls, self).name``; ``super`` may have been rebound by the
    program.
    """
    stack = frame.stack
    fn, cls, instance = stack[-3:]
    del stack[-3:]
    args = (cls, instance) if explicit or fn is builtins.super else ()
    return frame.world.load_attr(frame.calls.call(fn, args, {}), name)


def load_super_attr(frame: Frame, operand: tuple[str, bool]) -> None:
    name, explicit = operand
    frame.stack.append(_super_attr(frame, name, explicit=explicit))


def load_super_method_null_below(frame: Frame, operand: tuple[str, bool]) -> None:
    name, explicit = operand
    frame.stack += (NULL, _super_attr(frame, name, explicit=explicit))


def load_super_method_null_above(frame: Frame, operand: tuple[str, bool]) -> None:
    name, explicit = operand
    frame.stack += (_super_attr(frame, name, explicit=explicit), NULL)


def special_method(frame: Frame, obj: Any, name: str) -> Any:
    """``obj``'s bound special method as CPython looks it up: on the type, past the instance; NULL
    if missing.
    """
    cls = type(obj)
    for base in cls.__mro__:
        if name in base.__dict__:
            raw = base.__dict__[name]
            break
    else:
        return NULL
    frame.world.load_attr(cls, name)  # guards what the class has
    if type(raw) is FunctionType:
        return MethodType(raw, obj)
    if not hasattr(type(raw), "__get__"):
        return raw
    getter = frame.world.load_attr(type(raw), "__get__")
    return frame.calls.call(getter, (raw, obj, cls), {})
