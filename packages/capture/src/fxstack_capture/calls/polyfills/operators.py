"""Requests for operators: calls of the special methods that CPython would call.

A result of None stands for no request: the C code itself runs.
"""

from __future__ import annotations

import operator
from collections.abc import Callable
from typing import Any

import torch

from fxstack_capture.calls.operators.plain_objects import is_ours, is_plain_object, method_call
from fxstack_capture.calls.polyfills.special_methods import method_of, special
from fxstack_capture.interpreter import polyfills as polyfill
from fxstack_capture.native.class_flags import is_immutable
from fxstack_capture.operator_protocol import UNARY, by_identity, candidates, is_binary, type_error
from fxstack_capture.torch_side.numbers.symbols import symbolic_number
from fxstack_capture.torch_side.subclasses.fake_classes import shown_class
from fxstack_capture.trace.lazy_dict import ABSENT
from fxstack_capture.trace.state import Calls, Request

Maker = Callable[..., Request | None]


def binary(calls: Calls, op: Any, left: object, right: object) -> Request | None:
    """Return the request for a binary function of module ``operator``."""
    if op is operator.contains:
        return _contains(calls, left, right)
    if op is operator.getitem:
        return method_of(calls, left, "__getitem__", right)
    if not (is_binary(op) and _takes_part(left) and _takes_part(right)):
        return None
    operands = left, right
    requests: list[Request] = []
    for index, name in candidates(op, (type(left), type(right)), calls.objects.classes.lookup):
        if is_plain_object(operands[index]):
            calls_of_operand = method_call(calls, operands[index], name, operands[1 - index])
            if calls_of_operand is None:
                return None
            requests += calls_of_operand
    if not requests:
        return None
    same = by_identity(op, left, right)
    refusal = polyfill.raise_type_error, (type_error(op, _name(left), _name(right)),)
    request: Request = refusal if same is None else (polyfill.pass_through, (same,))
    for attempt in reversed(requests):
        request = polyfill.first_answer, (*attempt, *request)
    return request


def _takes_part(value: object) -> bool:
    """Whether only Python special methods can define the operator for ``value``."""
    if isinstance(value, torch.Tensor):
        return shown_class(value) is None  # torch's methods return NotImplemented for such an operand
    return type(value) in _NUMBERS or (is_plain_object(value) and not is_ours(value))


_NUMBERS = frozenset({int, float, complex, bool, type(None), torch.SymInt, torch.SymFloat, torch.SymBool})
"""C types whose operators return NotImplemented for objects of Python classes."""


def _name(value: object) -> str:
    """Return the name of an operand's class in a TypeError of CPython."""
    if isinstance(value, torch.Tensor):
        return "Tensor"
    return (
        type(value).__name__.removeprefix("Sym").lower() if symbolic_number(value) else type(value).__name__
    )


def _contains(calls: Calls, container: object, item: object) -> Request | None:
    """Return the request for ``item in container``."""
    method = special(calls, container, "__contains__")
    if method is not None:
        return polyfill.as_bool, (method, (container, item))
    if not is_plain_object(container) or special(calls, container, "__iter__") is None:
        return None
    lacks = calls.objects.classes.lookup(type(container), "__contains__") is ABSENT
    return (polyfill.contains_by_iteration, (container, item)) if lacks else None


def unary(calls: Calls, op: Any, value: object) -> Request | None:
    """Return the request for a unary function of module ``operator``."""
    name = UNARY.get(op)
    return None if name is None else method_of(calls, value, name)


def truth(calls: Calls, value: object) -> Request | None:
    """Return the request for ``bool(value)``."""
    method = special(calls, value, "__bool__")
    if method is not None:
        return polyfill.truth, (method, value)
    if is_immutable(type(value)) or _has(calls, value, "__bool__"):
        return None
    method = special(calls, value, "__len__")
    return None if method is None else (polyfill.has_length, (method, value))


def _has(calls: Calls, value: object, name: str) -> bool:
    """Whether the class of ``value`` defines the special method ``name``."""
    return calls.objects.classes.lookup(type(value), name) is not ABSENT


def item(calls: Calls, name: str, container: object, *args: object) -> Request | None:
    """Return the request for ``__getitem__``, ``__setitem__`` or ``__delitem__``."""
    return method_of(calls, container, name, *args)
