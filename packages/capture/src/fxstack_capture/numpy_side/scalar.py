"""``Scalar``: what stands for a NumPy scalar from outside that changes from call to call.

It holds a symbolic number. What torch makes of the scalar is what it makes of that number; sums, differences and
products of ``float64`` and ``int64``, quotients of ``float64`` and comparisons are computed symbolically, as NumPy
computes them. Whatever else is done with it asks for the value (``settle``), which is a constant from then on.
"""

from __future__ import annotations

import math
import operator
from collections.abc import Callable, Mapping
from types import MappingProxyType
from typing import Any, Final

import numpy as np
import torch

from fxstack_capture.callers import calls_program
from fxstack_capture.operator_protocol import (
    ARITHMETIC_NAMES,
    COMPARISON_NAMES,
    COMPARISONS,
    define_methods,
    function_of,
)
from fxstack_capture.trace.state import Trace

WORD: Final = 2**62
"""What an integer from outside is guarded to be smaller than."""


class Scalar:
    """``example`` is the scalar as it is now, ``number`` the same as a SymInt or SymFloat of the trace.

    ``bound`` is what an integer is smaller than, in every call. C code that computes with a ``Scalar`` finds its
    operators.
    """

    __slots__ = ("__weakref__", "_concrete", "bound", "example", "number", "trace")
    __array_priority__ = 2000.0  # before tensors

    def __init__(self, trace: Trace, number: Any, example: Any, bound: int = WORD) -> None:
        self.trace = trace
        self.number = number
        self.example = example
        self.bound = bound
        self._concrete = False

    @calls_program
    def settle(self) -> Any:
        """The scalar as a constant; guarded."""
        if not self._concrete:
            self.trace.torch.specialize(self.number)
            self._concrete = True
        return self.example

    def item(self) -> Any:
        """The number, for Python."""
        return self.example.item() if self._concrete else self.number

    @property
    def is_concrete(self) -> bool:
        """Whether its value is guarded."""
        return self._concrete

    @calls_program
    def __array__(self, *args: Any, **kwargs: Any) -> Any:
        return np.asarray(self.settle(), *args, **kwargs)

    @calls_program
    def __getattr__(self, name: str) -> Any:
        return getattr(self.settle(), name)

    @calls_program
    def __array_ufunc__(self, ufunc: Any, method: str, *inputs: Any, **kwargs: Any) -> Any:
        plain = [concrete(value) for value in inputs]
        return getattr(ufunc, method)(*plain, **kwargs)


def item(scalar: Scalar) -> Any:
    """``scalar.item()``."""
    return scalar.item()


def concrete(value: object) -> Any:
    """A value, with a ``Scalar`` as the constant that it becomes."""
    return value.settle() if type(value) is Scalar else value


# --- operators -----------------------------------------------------------------------------------


def _sum(left: int, right: int) -> int:
    return left + right


def _product(left: int, right: int) -> int:
    return left * right


def _dividend(left: int, _right: int) -> int:
    return left


def _divisor(_left: int, right: int) -> int:
    return right


_BOUNDS: Mapping[Any, Callable[[int, int], int]] = MappingProxyType(
    {
        **dict.fromkeys((operator.add, operator.iadd, operator.sub, operator.isub), _sum),
        **dict.fromkeys((operator.mul, operator.imul), _product),
        **dict.fromkeys((operator.floordiv, operator.ifloordiv), _dividend),
        **dict.fromkeys((operator.mod, operator.imod), _divisor),
    }
)
"""How large the result of an operator on integers can be."""

_OF_FRACTIONS = frozenset(op for op, bound in _BOUNDS.items() if bound in (_sum, _product))
_DIVISIONS = (operator.truediv, operator.itruediv)
_KINDS = (np.float64, np.int64)
_EXACT = 2**53
_SMALL = 2**31


def compute(op: Callable[[Any, Any], Any], left: Any, right: Any) -> Any:
    """``op`` of two numbers, one of which is a ``Scalar``; NotImplemented where symbols do not compute what NumPy does."""
    if not (_is_number(left) and _is_number(right)) or (left is right and op in COMPARISONS):
        return NotImplemented
    mine = left if type(left) is Scalar else right
    fractions = _is_fraction(left) or _is_fraction(right)
    divides = op in _DIVISIONS and _value(right) != 0
    if (fractions or divides) and not (_fits_double(left) and _fits_double(right)):
        return NotImplemented
    if op in COMPARISONS:
        return np.bool_(mine.trace.torch.specialize(op(_number(left), _number(right))))
    if divides or (fractions and op in _OF_FRACTIONS):
        return _make(mine, op, left, right, WORD)
    if fractions or op not in _BOUNDS or not _divides_plainly(op, right):
        return NotImplemented
    bound = _room(_BOUNDS[op], left, right)
    return NotImplemented if bound > WORD else _make(mine, op, left, right, bound)


def _is_number(value: Any) -> bool:
    if type(value) is Scalar:
        return type(value.example) in _KINDS and not value.is_concrete
    if type(value) in (float, np.float64):
        return math.isfinite(value)
    return type(value) in (int, np.int64) and -WORD < value < WORD


def _is_fraction(value: object) -> bool:
    return isinstance(_value(value), float)


def _fits_double(value: object) -> bool:
    """Whether a double holds an operand: NumPy converts integers to it, Python need not."""
    if _is_fraction(value):
        return True
    _keep_small(value)
    return _bound(value) <= _EXACT


def _divides_plainly(op: Callable[[Any, Any], Any], divisor: Any) -> bool:
    return _BOUNDS[op] in (_sum, _product) or (type(divisor) is int and divisor > 0)


def _room(bound_of: Callable[[int, int], int], left: object, right: object) -> int:
    """What the result is smaller than; operands of 32 bits are guarded to be that if need be."""
    bound = bound_of(_bound(left), _bound(right))
    if bound > WORD:
        _keep_small(left)
        _keep_small(right)
        bound = bound_of(_bound(left), _bound(right))
    return bound


def _number(value: object) -> Any:
    if type(value) is Scalar:
        return value.number
    return value.item() if isinstance(value, np.generic) else value


def _value(value: object) -> Any:
    return value.example if type(value) is Scalar else value


def _bound(value: Any) -> int:
    return value.bound if type(value) is Scalar else abs(int(value)) + 1


def _keep_small(value: object) -> None:
    """Guard that an integer is of 32 bits, if it is: then there is room for products."""
    if type(value) is Scalar and value.bound > _SMALL and -_SMALL < value.example < _SMALL:
        specialize = value.trace.torch.specialize
        if specialize(value.number < _SMALL) and specialize(value.number > -_SMALL):
            value.bound = _SMALL


def _make(mine: Scalar, op: Callable[[Any, Any], Any], left: Any, right: Any, bound: int) -> Any:
    example = op(_value(left), _value(right))
    if type(example) not in _KINDS or not np.isfinite(example):
        return NotImplemented
    number = op(_number(left), _number(right))
    if not isinstance(number, (torch.SymInt, torch.SymFloat)):
        return example
    return Scalar(mine.trace, number, example, bound)


def negative(value: Scalar) -> Any:
    """``-value``; NotImplemented where that is left to NumPy."""
    if type(value.example) not in (np.float64, np.float32, np.int64) or value.is_concrete:
        return NotImplemented
    return Scalar(value.trace, -value.number, -value.example, value.bound)


def _compute(self: Scalar, function: Callable[..., Any], operands: tuple[Any, ...]) -> Any:
    return self.trace.calls.binary(function, *operands)


def _compute_reflected(self: Scalar, function: Callable[..., Any], operands: tuple[Any, ...]) -> Any:
    return self.trace.calls.binary(function, *operands[::-1])


def _compute_concrete(self: Scalar, function: Callable[..., Any], operands: tuple[Any, ...]) -> Any:
    return function(self.settle(), *operands[1:])


_ARITHMETIC = tuple(name for name in ARITHMETIC_NAMES if name != "matmul")
_CONSTANT = (
    *(bool, int, float, complex, operator.index, hash, repr, str, format, round, divmod),
    *(math.trunc, math.floor, math.ceil, abs, operator.pos, operator.neg, operator.invert),
)
define_methods(Scalar, {name: function_of(name) for name in (*_ARITHMETIC, *COMPARISON_NAMES)}, _compute)
define_methods(Scalar, {f"r{name}": function_of(name) for name in _ARITHMETIC}, _compute_reflected)
define_methods(Scalar, {fn.__name__: fn for fn in _CONSTANT}, _compute_concrete)
