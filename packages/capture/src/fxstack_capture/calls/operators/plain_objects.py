"""Objects of classes that the program has written in Python: the special methods that an operator calls."""

from __future__ import annotations

from types import FunctionType

import torch

from fxstack_capture.interpreter import polyfills as polyfill
from fxstack_capture.native.class_flags import is_heap_type
from fxstack_capture.torch_side.numbers.symbols import symbolic_number
from fxstack_capture.trace.lazy_dict import ABSENT
from fxstack_capture.trace.state import Calls, Request


def is_plain_object(value: object) -> bool:
    """Whether the class of ``value`` and all its bases are written in Python.

    Classes of tensors and of symbolic numbers do not count.
    """
    cls = type(value)
    if isinstance(value, torch.Tensor) or symbolic_number(value) or hasattr(cls, "__torch_function__"):
        return False
    return all(base is object or is_heap_type(base) for base in cls.__mro__)


def is_ours(value: object) -> bool:
    """Whether the class of ``value`` belongs to fxstack, for example that of a generator or a proxy."""
    return type(value).__module__.startswith("fxstack_capture.")


def method_call(calls: Calls, value: object, name: str, other: object) -> list[Request] | None:
    """Return the call of the method ``name`` that an operator makes on a plain object, as a list with one
    request.

    The list is empty if the method can only return NotImplemented. Return None if the method is not a Python
    function.
    """
    function = calls.objects.classes.lookup(type(value), name)
    if type(function) is FunctionType:
        return [(function, (value, other))]
    if function is object.__ne__:
        equal = calls.objects.classes.lookup(type(value), "__eq__")
        if type(equal) is FunctionType:
            return [(polyfill.unequal, (equal, value, other))]
        return [] if equal is object.__eq__ else None
    return [] if function is ABSENT or function is getattr(object, name, None) else None
