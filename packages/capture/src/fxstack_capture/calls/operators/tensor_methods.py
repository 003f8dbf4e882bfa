"""Operators on tensors that methods of the program decide: those of users' classes of tensors, and of plain objects.

What a class of tensors leaves to torch is recorded as any operator of torch. Every special method of
``torch.Tensor`` returns NotImplemented for an object that is neither a number nor has ``__torch_function__``, so
that the methods of the object's class decide alone.
"""

from __future__ import annotations

from collections.abc import Callable
from types import FunctionType
from typing import Any

import torch

from fxstack_capture.breaks import graph_break
from fxstack_capture.calls.operators.plain_objects import is_plain_object, method_call
from fxstack_capture.operator_protocol import OUT_OF_PLACE, UNARY, by_identity, candidates, is_binary
from fxstack_capture.torch_side.subclasses.fake_classes import is_users, shown_class
from fxstack_capture.trace.state import Calls


def method(calls: Calls, value: object, name: str) -> Any:
    """The function that a user's class of tensors defines for a special method; None if torch's own serves."""
    cls = shown_class(value) if isinstance(value, torch.Tensor) else None
    if cls is None or not is_users(cls, name):
        return None
    found = calls.objects.classes.lookup(cls, name)
    if type(found) is not FunctionType:
        raise graph_break("unsupported-call", f"{name} of a {cls.__qualname__}")
    return found


def unary(calls: Calls, op: Callable[[Any], Any], value: object) -> Any:
    """The result of a user's method; NotImplemented where torch's own serves."""
    name = UNARY.get(op)
    found = None if name is None else method(calls, value, name)
    return NotImplemented if found is None else calls.call(found, (value,), {})


def binary(calls: Calls, op: Callable[[Any, Any], Any], left: object, right: object) -> Any:
    """The result of the program's methods, where an operand is a tensor; NotImplemented where torch's own serve."""
    operands = left, right
    with_object = any(map(is_plain_object, operands))
    if not is_binary(op) or not (with_object or any(shown_class(value) is not None for value in operands)):
        return NotImplemented
    order = tuple(candidates(op, (_kind(left), _kind(right)), _attribute))
    if not with_object and _torch_serves(calls, op, operands, order):
        return NotImplemented
    for index, name in order:
        result = _attempt(calls, operands[index], name, operands[1 - index])
        if result is not NotImplemented:
            return result
    if not with_object:
        raise graph_break("unsupported-call", f"operator {op.__name__}, which no operand implements,")
    same = by_identity(op, left, right)
    return NotImplemented if same is None else same


def _torch_serves(
    calls: Calls, op: object, operands: tuple[Any, Any], order: tuple[tuple[int, str], ...]
) -> bool:
    """Whether torch's operator begins, or no user's class takes part at all."""
    own = (method(calls, operands[index], name) is not None for index, name in order)
    if op in OUT_OF_PLACE and isinstance(operands[0], torch.Tensor):
        return not next(own)
    return not any(own)


def _kind(value: object) -> type:
    return shown_class(value) or (torch.Tensor if isinstance(value, torch.Tensor) else type(value))


def _attribute(cls: type, name: str) -> object:
    return getattr(cls, name, None)


def _attempt(calls: Calls, value: object, name: str, other: object) -> Any:
    """The result of one operand's method. Torch's own give NotImplemented for a plain object."""
    if isinstance(value, torch.Tensor):
        found = method(calls, value, name)
        if found is None and is_plain_object(other):
            return NotImplemented
        return calls.call(getattr(torch.Tensor, name) if found is None else found, (value, other), {})
    if type(value) in (int, float, bool, complex, str):
        return NotImplemented
    kind = type(value).__qualname__
    if not is_plain_object(value):
        raise graph_break("unsupported-call", f"an operator between a tensor and a {kind}")
    found = method_call(calls, value, name, other)
    if found is None:
        raise graph_break("unsupported-call", f"{name} of a {kind}")
    return calls.call(*found[0], {}) if found else NotImplemented
