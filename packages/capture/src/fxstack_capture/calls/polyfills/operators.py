"""Operators: which special methods CPython calls, and in which order."""

from __future__ import annotations

import operator
import types
from collections.abc import Callable
from typing import Any

import torch

from fxstack_capture.calls.operators.mixed_operands import is_plain_object
from fxstack_capture.calls.operators.tensor_methods import BINARY, COMPARISONS, IN_PLACE, UNARY
from fxstack_capture.calls.polyfills import functions as polyfill
from fxstack_capture.calls.polyfills.finding import is_ours, is_symbol, method_of, special
from fxstack_capture.objects.class_flags import is_immutable
from fxstack_capture.objects.kinds.lazy_dict import ABSENT
from fxstack_capture.torch_side.subclasses.fake_classes import shown_class
from fxstack_capture.trace.state import Calls, Request

Maker = Callable[..., Request | None]


def binary(calls: Calls, op: object, left: object, right: object) -> Request | None:
    """Of a function of module ``operator``."""
    if op is operator.contains:
        return _contains(calls, left, right)
    if op is operator.getitem:
        return method_of(calls, left, "__getitem__", right)
    plain, in_place = op, None
    if op in IN_PLACE:
        in_place, plain = IN_PLACE[op]
    names = BINARY.get(plain)
    if names is None or not (_takes_part(left) and _takes_part(right)):
        return None
    attempts = _attempts(calls, plain, names, (left, right))
    if attempts is not None and in_place is not None:
        found = _attempt(calls, left, in_place, right)
        attempts = None if found is None else [*found, *attempts]
    if not attempts:
        return None
    request = _when_nobody_knows(op, left, right)
    for attempt in reversed(attempts):
        request = polyfill.first_answer, (*attempt, *request)
    return request


def _takes_part(value: object) -> bool:
    """Whether all that is known to define the operator for ``value`` is what its class says in Python."""
    if isinstance(value, torch.Tensor):
        return shown_class(value) is None  # torch's own methods leave it to the other operand
    return type(value) in _NUMBERS or (is_plain_object(value) and not is_ours(value))


_NUMBERS = frozenset({int, float, complex, bool, type(None), torch.SymInt, torch.SymFloat, torch.SymBool})
"""C types whose operators give NotImplemented for objects of classes that are written in Python."""


def _attempts(
    calls: Calls, op: object, names: tuple[str, str], operands: tuple[Any, Any]
) -> list[Request] | None:
    """What CPython calls until there is an answer; None where it is not known."""
    left, right = operands
    kinds = type(left), type(right)
    on_left = _attempt(calls, left, names[0], right)
    on_right = _attempt(calls, right, names[1], left)
    if on_left is None or on_right is None:
        return None
    if kinds[0] is kinds[1]:
        return [*on_left, *on_right] if op in COMPARISONS else on_left
    if issubclass(kinds[1], kinds[0]) and (op in COMPARISONS or _overrides(calls, kinds, names[1])):
        return [*on_right, *on_left]
    return [*on_left, *on_right]


def _overrides(calls: Calls, kinds: tuple[type, type], name: str) -> bool:
    lookup = calls.objects.classes.lookup
    return lookup(kinds[1], name) is not lookup(kinds[0], name)


def _attempt(calls: Calls, value: object, name: str, other: object) -> list[Request] | None:
    """The call of a special method, if the class has it; None if it is not a Python function."""
    if not is_plain_object(value):
        return []
    found = calls.objects.classes.lookup(type(value), name)
    if type(found) is types.FunctionType:
        return [(found, (value, other))]
    if found is object.__ne__:
        equal = calls.objects.classes.lookup(type(value), "__eq__")
        if type(equal) is types.FunctionType:
            return [(polyfill.unequal, (equal, value, other))]
        return [] if equal is object.__eq__ else None
    return [] if found is ABSENT or found is getattr(object, name, None) else None


_SYMBOLS = {
    **{f"__{name}__": symbol for name, symbol in zip(
        ("add", "sub", "mul", "truediv", "floordiv", "mod", "matmul", "and", "or", "xor", "lshift", "rshift"),
        ("+", "-", "*", "/", "//", "%", "@", "&", "|", "^", "<<", ">>"), strict=True)},
    "__pow__": "** or pow()",
    "__lt__": "<", "__gt__": ">", "__le__": "<=", "__ge__": ">=",
}  # fmt: skip


def _when_nobody_knows(op: object, left: object, right: object) -> Request:
    if op in (operator.eq, operator.ne):
        return polyfill.given, ((left is right) is (op is operator.eq),)
    kinds = _name(left), _name(right)
    if op in COMPARISONS:
        symbol = _SYMBOLS[BINARY[op][0]]
        text = f"{symbol!r} not supported between instances of {kinds[0]!r} and {kinds[1]!r}"
        return polyfill.refuse, (text,)
    symbol = _SYMBOLS[BINARY[IN_PLACE[op][1] if op in IN_PLACE else op][0]]
    if op in IN_PLACE:
        symbol = f"{symbol.removesuffix(' or pow()')}="
    return polyfill.refuse, (f"unsupported operand type(s) for {symbol}: {kinds[0]!r} and {kinds[1]!r}",)


def _name(value: object) -> str:
    if isinstance(value, torch.Tensor):
        return "Tensor"
    return type(value).__name__.removeprefix("Sym").lower() if is_symbol(value) else type(value).__name__


def _contains(calls: Calls, container: object, item: object) -> Request | None:
    method = special(calls, container, "__contains__")
    if method is not None:
        return polyfill.as_bool, (method, (container, item))
    if not is_plain_object(container) or special(calls, container, "__iter__") is None:
        return None
    lacks = calls.objects.classes.lookup(type(container), "__contains__") is ABSENT
    return (polyfill.contains_by_iteration, (container, item)) if lacks else None


def unary(calls: Calls, op: object, value: object) -> Request | None:
    name = UNARY.get(op)
    return None if name is None else method_of(calls, value, name)


def truth(calls: Calls, value: object) -> Request | None:
    method = special(calls, value, "__bool__")
    if method is not None:
        return polyfill.truth, (method, value)
    if is_immutable(type(value)) or _has(calls, value, "__bool__"):
        return None
    method = special(calls, value, "__len__")
    return None if method is None else (polyfill.has_length, (method, value))


def _has(calls: Calls, value: object, name: str) -> bool:
    return calls.objects.classes.lookup(type(value), name) is not ABSENT


def item(calls: Calls, name: str, container: object, *args: object) -> Request | None:
    """``__getitem__``, ``__setitem__``, ``__delitem__``."""
    return method_of(calls, container, name, *args)
