"""Operators between a tensor and an object of a program's own class.

Every special method of ``torch.Tensor`` returns NotImplemented for an object that is neither a number nor has
``__torch_function__``, so that what the object's class defines decides alone.
"""

from __future__ import annotations

import operator
from collections.abc import Callable
from types import FunctionType
from typing import Any

import torch

from fxstack_capture.breaks import graph_break
from fxstack_capture.calls.operators.tensor_methods import BINARY, IN_PLACE
from fxstack_capture.objects.class_flags import is_heap_type
from fxstack_capture.objects.kinds.lazy_dict import ABSENT
from fxstack_capture.trace.state import Calls

_NUMBERS = (torch.SymInt, torch.SymFloat, torch.SymBool)
_WHEN_NOBODY_KNOWS = {operator.eq: False, operator.ne: True}


def binary(calls: Calls, op: Callable[[Any, Any], Any], left: object, right: object) -> Any:
    """What the object's method returns; NotImplemented where no such method serves."""
    on_left = is_plain_object(left)
    if not on_left and not is_plain_object(right):
        return NotImplemented
    if op in IN_PLACE:
        name, op = IN_PLACE[op]
        result = _attempt(calls, left, name, right) if on_left else NotImplemented
        if result is not NotImplemented:
            return result
    if op not in BINARY:
        return NotImplemented
    name, reflected = BINARY[op]
    result = _attempt(calls, left, name, right) if on_left else _attempt(calls, right, reflected, left)
    return _WHEN_NOBODY_KNOWS.get(op, NotImplemented) if result is NotImplemented else result


def is_plain_object(value: object) -> bool:
    """Whether its class, like all that it inherits from, is written in Python, and no tensor's nor a symbolic number's."""
    cls = type(value)
    if isinstance(value, (torch.Tensor, *_NUMBERS)) or hasattr(cls, "__torch_function__"):
        return False
    return all(base is object or is_heap_type(base) for base in cls.__mro__)


def _attempt(calls: Calls, value: object, name: str, other: object) -> Any:
    found = calls.objects.classes.lookup(type(value), name)
    if found is ABSENT or found is getattr(object, name, None):
        return NotImplemented
    if type(found) is not FunctionType:
        raise graph_break("unsupported-call", f"{name} of a {type(value).__qualname__}")
    return calls.call(found, (value, other), {})
