"""Special methods that users' classes of tensors define: found and ordered as CPython does for operators.

What a class of tensors leaves to torch is recorded as any operator of torch.
"""

from __future__ import annotations

import operator
from collections.abc import Callable
from types import FunctionType
from typing import Any

import torch

from fxstack_capture.breaks import graph_break
from fxstack_capture.torch_side.subclasses.fake_classes import is_users, shown_class
from fxstack_capture.trace.state import Calls

_ARITHMETIC = (
    *("add", "sub", "mul", "truediv", "floordiv", "mod", "pow", "matmul"),
    *("and", "or", "xor", "lshift", "rshift"),
)
_MIRRORED = {"lt": "gt", "gt": "lt", "le": "ge", "ge": "le", "eq": "eq", "ne": "ne"}


def _operator(name: str) -> Any:
    return getattr(operator, f"{name}_" if name in ("and", "or") else name)


BINARY: dict[Any, tuple[str, str]] = {
    **{_operator(name): (f"__{name}__", f"__r{name}__") for name in _ARITHMETIC},
    **{_operator(name): (f"__{name}__", f"__{other}__") for name, other in _MIRRORED.items()},
}
IN_PLACE: dict[Any, tuple[str, Any]] = {
    getattr(operator, f"i{name}"): (f"__i{name}__", _operator(name)) for name in _ARITHMETIC
}
UNARY: dict[Any, str] = {
    **{op: f"__{op.__name__}__" for op in (operator.neg, operator.pos, operator.invert)},
    **dict.fromkeys((abs, operator.abs), "__abs__"),
}


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
    """The same for two operands, of which at least one is a tensor."""
    if shown_class(left) is None and shown_class(right) is None:
        return NotImplemented
    if op in IN_PLACE:
        name, op = IN_PLACE[op]
        found = method(calls, left, name)
        result = NotImplemented if found is None else calls.call(found, (left, right), {})
        torchs = isinstance(left, torch.Tensor) and found is None
        if result is not NotImplemented or torchs:
            return result
    names = BINARY.get(op)
    if names is None or not any(
        method(calls, *operand) for operand in zip((left, right), names, strict=True)
    ):
        return NotImplemented
    return _ordered(calls, op, (left, right), names)


def _ordered(calls: Calls, op: Callable[..., Any], operands: tuple[Any, Any], names: tuple[str, str]) -> Any:
    left, right = operands
    attempts = [(left, names[0], right)]
    kinds = _kind(left), _kind(right)
    if kinds[0] is not kinds[1] or op in COMPARISONS:
        reflected = right, names[1], left
        first = issubclass(kinds[1], kinds[0]) and kinds[0] is not kinds[1]
        first = first and (op in COMPARISONS or _differs(kinds, names[1]))
        attempts.insert(0 if first else 1, reflected)
    for value, name, other in attempts:
        result = _attempt(calls, value, name, other)
        if result is not NotImplemented:
            return result
    raise graph_break("unsupported-call", f"operator {op.__name__}, which no operand implements,")


COMPARISONS = frozenset(map(_operator, _MIRRORED))


def _kind(value: object) -> type:
    return (shown_class(value) if isinstance(value, torch.Tensor) else None) or (
        torch.Tensor if isinstance(value, torch.Tensor) else type(value)
    )


def _differs(kinds: tuple[type, type], name: str) -> bool:
    """Whether the class on the right has a reflected method of its own."""
    return getattr(kinds[0], name, None) is not getattr(kinds[1], name, None)


def _attempt(calls: Calls, value: object, name: str, other: object) -> Any:
    if not isinstance(value, torch.Tensor):
        return NotImplemented if type(value) in (int, float, bool, complex, str) else _refuse(value)
    found = method(calls, value, name)
    return calls.call(getattr(torch.Tensor, name) if found is None else found, (value, other), {})


def _refuse(value: object) -> Any:
    raise graph_break("unsupported-call", f"an operator between a tensor and a {type(value).__qualname__}")
