"""Calls and operators with NumPy scalars that change from call to call. They become symbolic numbers or
constants.
"""

from __future__ import annotations

import operator
from collections.abc import Callable
from typing import Any

import numpy as np
import torch

from fxstack_capture.numpy_side.array import Array
from fxstack_capture.numpy_side.scalar import Scalar, compute, concrete, item, negative
from fxstack_capture.torch_side.arrays.tensor_arrays import operands
from fxstack_capture.trace.state import Args, Calls, Kwargs

_ASKING = frozenset(
    id(fn)
    for fn in (
        *(type, isinstance, getattr, hasattr, setattr, bool, float, int, len, min, max, sum, sorted),
        *(operator.getitem, operator.setitem, operator.delitem),
    )
)
"""Functions whose rules accept a ``Scalar`` as it is."""


def for_rule(calls: Calls, fn: object, args: Args, kwargs: Kwargs) -> tuple[tuple[Any, ...], dict[str, Any]]:
    """Return the arguments for the rule of ``fn``. Most rules accept only constants, so a ``Scalar`` becomes
    a constant.
    """
    if id(fn) in _ASKING or fn is item:
        return args, kwargs
    if getattr(fn, "__module__", None) == "math":
        args = tuple(_real(arg) for arg in args)
    if not any(type(value) is Scalar for value in (*args, *kwargs.values())):
        return args, kwargs
    args = tuple(concrete(arg) for arg in args)
    return args, {name: concrete(value) for name, value in kwargs.items()}


def _real(value: object) -> Any:
    """Return a ``float64`` scalar as a symbolic float, which the rules of ``math`` accept."""
    return value.item() if type(value) is Scalar and type(value.example) is np.float64 else value


def binary(calls: Calls, op: Callable[[Any, Any], Any], left: object, right: object) -> Any:
    """Return the result of a binary operator. At least one operand is a ``Scalar``.

    ``protocol.binary`` calls this.
    """
    if isinstance(left, torch.Tensor) or isinstance(right, torch.Tensor):
        left, right = operands(op, (left, right))
        return calls.binary(op, left, right)
    if type(left) is Array or type(right) is Array:
        return calls.trace.torch.arrays.call(op, (left, right), {})
    result = compute(op, left, right)
    if result is NotImplemented:
        return calls.binary(op, concrete(left), concrete(right))
    return result


def unary(calls: Calls, op: Callable[[Any], Any], value: Scalar) -> Any:
    """Return the result of a unary operator on a ``Scalar``. ``protocol.unary`` calls this."""
    result = negative(value) if op is operator.neg else NotImplemented
    return calls.unary(op, value.settle()) if result is NotImplemented else result
