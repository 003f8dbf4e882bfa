"""Attribute access, including access through ``super()``."""

from __future__ import annotations

import builtins
from typing import Any

from fxstack_capture.bytecode.null import NULL
from fxstack_capture.interpreter.frame import Frame


def load_attr(frame: Frame, name: str) -> None:
    """Replace the object on top of the stack with its attribute ``name``."""
    stack = frame.stack
    stack[-1] = frame.objects.load_attr(stack[-1], name)


def load_method_null_below(frame: Frame, name: str) -> None:
    """Replace the object on top of the stack with NULL and the bound method (Python 3.11 and 3.12).

    A call accepts this pair in place of the function and ``self``.
    """
    stack = frame.stack
    stack[-1:] = (NULL, frame.objects.load_attr(stack[-1], name))


def load_method_null_above(frame: Frame, name: str) -> None:
    """Replace the object on top of the stack with the bound method and NULL (from Python 3.13 on)."""
    stack = frame.stack
    stack[-1:] = (frame.objects.load_attr(stack[-1], name), NULL)


def store_attr(frame: Frame, name: str) -> None:
    """Run ``obj.name = value``. A ``__setattr__`` of the program runs as a resumable call."""
    stack = frame.stack
    obj, value = stack.pop(), stack.pop()
    method = frame.calls.special_method(obj, "__setattr__")
    if method is None:
        frame.objects.store_attr(obj, name, value)
    else:
        frame.calls.call_linked(method, (obj, name, value), {})


def delete_attr(frame: Frame, name: str) -> None:
    """Delete an attribute of the object on the stack."""
    frame.objects.delete_attr(frame.stack.pop(), name)


def _super_attr(frame: Frame, name: str, *, explicit: bool) -> Any:
    """Pop the operands of ``super().name`` or ``super(cls, self).name``, and return the attribute.

    ``explicit``: the program wrote arguments for ``super``.
    """
    stack = frame.stack
    fn, cls, instance = stack[-3:]
    del stack[-3:]
    # The program may have bound the name ``super`` to another object. The call then gets only the arguments
    # in the source.
    args = (cls, instance) if explicit or fn is builtins.super else ()
    return frame.objects.load_attr(frame.calls.call(fn, args, {}), name)


def load_super_attr(frame: Frame, operand: tuple[str, bool]) -> None:
    """Replace ``super``, the class and the receiver on the stack with the attribute.

    ``operand`` contains the name, and whether the program passed arguments to ``super``.
    """
    name, explicit = operand
    frame.stack.append(_super_attr(frame, name, explicit=explicit))


def load_super_method_null_below(frame: Frame, operand: tuple[str, bool]) -> None:
    """Load a method through ``super`` and push NULL below the callable (Python 3.12)."""
    name, explicit = operand
    frame.stack += (NULL, _super_attr(frame, name, explicit=explicit))


def load_super_method_null_above(frame: Frame, operand: tuple[str, bool]) -> None:
    """Load a method through ``super`` and push NULL above the callable (Python 3.13)."""
    name, explicit = operand
    frame.stack += (_super_attr(frame, name, explicit=explicit), NULL)
