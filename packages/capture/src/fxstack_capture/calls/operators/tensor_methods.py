"""Operators on tensors that methods of the program implement.

These are methods of the program's tensor classes, and of plain objects. If a tensor class does not override
an operator, the operator is recorded like any operator of torch. Special methods of ``torch.Tensor`` return
NotImplemented for an object that is neither a number nor has ``__torch_function__``. Therefore the methods of
the object's class alone decide.
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
    """Return the program's function for a special method of a tensor class. None if torch's method applies.
    Break the graph if the method of the class is not a Python function.
    """
    cls = shown_class(value) if isinstance(value, torch.Tensor) else None
    if cls is None or not is_users(cls, name):
        return None
    function = calls.objects.classes.lookup(cls, name)
    if type(function) is not FunctionType:
        raise graph_break("unsupported-call", f"{name} of a {cls.__qualname__}")
    return function


def unary(calls: Calls, op: Callable[[Any], Any], value: object) -> Any:
    """Return the result of the program's method. NotImplemented if torch's method applies."""
    name = UNARY.get(op)
    function = None if name is None else method(calls, value, name)
    return NotImplemented if function is None else calls.call(function, (value,), {})


def binary(calls: Calls, op: Callable[[Any, Any], Any], left: object, right: object) -> Any:
    """Return the result of the program's methods for an operator on tensors. NotImplemented if torch's method
    applies. Break the graph if the operands are tensors or numbers, and every method returns NotImplemented.
    """
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
    """Whether torch computes the operator.

    This is so if torch's method comes first, or if no class of the program defines a method. ``order`` is the
    result of ``candidates``.
    """
    users = (method(calls, operands[index], name) is not None for index, name in order)
    if op in OUT_OF_PLACE and isinstance(operands[0], torch.Tensor):
        return not next(users)
    return not any(users)


def _kind(value: object) -> type:
    """Return the class of an operand, as the program sees it."""
    return shown_class(value) or (torch.Tensor if isinstance(value, torch.Tensor) else type(value))


def _attribute(cls: type, name: str) -> object:
    """Return the attribute ``name`` of ``cls``, or None. This is the ``lookup`` of ``candidates``."""
    return getattr(cls, name, None)


def _attempt(calls: Calls, value: object, name: str, other: object) -> Any:
    """Return the result of ``value.name(other)``, where ``name`` is the special method. Break the graph for
    an object of a C class.

    Return NotImplemented if torch's method would return it for a plain object.
    """
    if isinstance(value, torch.Tensor):
        function = method(calls, value, name)
        if function is None and is_plain_object(other):
            return NotImplemented
        return calls.call(getattr(torch.Tensor, name) if function is None else function, (value, other), {})
    if type(value) in (int, float, bool, complex, str):
        return NotImplemented
    kind = type(value).__qualname__
    if not is_plain_object(value):
        raise graph_break("unsupported-call", f"an operator between a tensor and a {kind}")
    function = method_call(calls, value, name, other)
    if function is None:
        raise graph_break("unsupported-call", f"{name} of a {kind}")
    return calls.call(*function[0], {}) if function else NotImplemented
