"""``Scalar``: the proxy of a NumPy scalar from outside that changes from call to call.

A ``Scalar`` contains a symbolic number. torch treats the scalar like this number. Some operators stay
symbolic, with NumPy's results: sums, differences and products of ``float64`` and ``int64``, quotients of
``float64``, and comparisons. Any other use reads the value (``settle``). The scalar is a constant from then
on.
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
"""A guard demands that the absolute value of an input integer is below this bound."""


class Scalar:
    """A NumPy scalar of the trace. ``example`` is the scalar of this call, and ``number`` is its SymInt or
    SymFloat.

    In every call, the absolute value of an integer is below ``bound``. If C code computes with a ``Scalar``,
    it calls the operators of the class.
    """

    __slots__ = ("__weakref__", "_concrete", "bound", "example", "number", "trace")
    __array_priority__ = 2000.0  # higher than the priority of tensors, so that NumPy calls these methods

    def __init__(self, trace: Trace, number: Any, example: Any, bound: int = WORD) -> None:
        """``number`` is the SymInt or SymFloat of the scalar. ``example`` is the NumPy scalar of this call."""
        self.trace = trace
        self.number = number
        self.example = example
        self.bound = bound
        self._concrete = False

    @calls_program
    def settle(self) -> Any:
        """Return the scalar as a constant, with a guard. Each use without a symbolic result calls this
        method.
        """
        if not self._concrete:
            self.trace.torch.specialize(self.number)
            self._concrete = True
        return self.example

    def item(self) -> Any:
        """Return the number as a Python number."""
        return self.example.item() if self._concrete else self.number

    @property
    def is_concrete(self) -> bool:
        """Whether the scalar has become a constant, which a guard demands."""
        return self._concrete

    @calls_program
    def __array__(self, *args: Any, **kwargs: Any) -> Any:
        """Return a constant array, because C code asks for the value."""
        return np.asarray(self.settle(), *args, **kwargs)

    @calls_program
    def __getattr__(self, name: str) -> Any:
        """Load an attribute of the constant, because C code asks for the attribute."""
        return getattr(self.settle(), name)

    @calls_program
    def __array_ufunc__(self, ufunc: Any, method: str, *inputs: Any, **kwargs: Any) -> Any:
        """Call a ufunc on constants."""
        plain = [concrete(value) for value in inputs]
        return getattr(ufunc, method)(*plain, **kwargs)


def item(scalar: Scalar) -> Any:
    """Return ``scalar.item()``. The bound method ``item`` that the program loads has this function."""
    return scalar.item()


def concrete(value: object) -> Any:
    """Return ``value``. A ``Scalar`` becomes a constant.

    Called for operands of functions without a symbolic result.
    """
    return value.settle() if type(value) is Scalar else value


# --- operators -----------------------------------------------------------------------------------


def _dividend(left: int, _right: int) -> int:
    """Return the bound of a quotient of two integers. The arguments are the bounds of the integers."""
    return left


def _divisor(_left: int, right: int) -> int:
    """Return the bound of a remainder of two integers. The arguments are the bounds of the integers."""
    return right


# NumPy's integers wrap around at 64 bits, but symbolic integers do not. The bound of a result proves that it
# cannot wrap around in any call.
_BOUNDS: Mapping[Any, Callable[[int, int], int]] = MappingProxyType(
    {
        **dict.fromkeys((operator.add, operator.iadd, operator.sub, operator.isub), operator.add),
        **dict.fromkeys((operator.mul, operator.imul), operator.mul),
        **dict.fromkeys((operator.floordiv, operator.ifloordiv), _dividend),
        **dict.fromkeys((operator.mod, operator.imod), _divisor),
    }
)
"""Maps an operator on integers to the function that computes the bound of its result."""

_OF_FRACTIONS = frozenset(op for op, bound in _BOUNDS.items() if bound in (operator.add, operator.mul))
"""Operators that stay symbolic if one operand is a float."""
_DIVISIONS = (operator.truediv, operator.itruediv)
"""Divisions whose result is a float."""
_KINDS = (np.float64, np.int64)
"""The classes of scalars whose arithmetic stays symbolic."""
# Up to this bound, a double represents every integer exactly.
_EXACT = 2**53
_SMALL = 2**31
"""Integers below this bound in magnitude fit into 32 bits. A product of two of them fits into 64 bits."""


def compute(op: Callable[[Any, Any], Any], left: Any, right: Any) -> Any:
    """Return ``op`` of two numbers, as NumPy computes it. At least one of them is a ``Scalar``.

    Return NotImplemented if the symbolic result could differ from NumPy's. The caller then uses constants.
    """
    # ``x == x`` is False for NaN, but sympy would simplify it to True.
    if not (_is_number(left) and _is_number(right)) or (left is right and op in COMPARISONS):
        return NotImplemented
    scalar = left if type(left) is Scalar else right
    fractions = _is_fraction(left) or _is_fraction(right)
    divides = op in _DIVISIONS and _value(right) != 0
    # Symbolic integers are exact, so converting a large one would give another float than NumPy's.
    if (fractions or divides) and not (_fits_double(left) and _fits_double(right)):
        return NotImplemented
    if op in COMPARISONS:
        return np.bool_(scalar.trace.torch.specialize(op(_number(left), _number(right))))
    if divides or (fractions and op in _OF_FRACTIONS):
        return _new_scalar(scalar, op, left, right, WORD)
    if fractions or op not in _BOUNDS or not _divides_plainly(op, right):
        return NotImplemented
    bound = _result_bound(_BOUNDS[op], left, right)
    return NotImplemented if bound > WORD else _new_scalar(scalar, op, left, right, bound)


def _is_number(value: Any) -> bool:
    """Whether an operand is a dynamic scalar, or a constant for which the arithmetic is exact."""
    if type(value) is Scalar:
        return type(value.example) in _KINDS and not value.is_concrete
    if type(value) in (float, np.float64):
        return math.isfinite(value)
    return type(value) in (int, np.int64) and -WORD < value < WORD


def _is_fraction(value: object) -> bool:
    """Whether the value of an operand is a float."""
    return isinstance(_value(value), float)


def _fits_double(value: object) -> bool:
    """Whether a double represents the operand exactly in every call. An integer is guarded to be small."""
    # NumPy converts an integer to a double before the operation. Python may not convert it.
    if _is_fraction(value):
        return True
    _keep_small(value)
    return _bound(value) <= _EXACT


def _divides_plainly(op: Callable[[Any, Any], Any], divisor: Any) -> bool:
    """Whether an integer operator gives the same result in NumPy and Python.

    This is so for sums, differences, products, and divisions by a positive constant. Any other division
    differs for zero or negative numbers.
    """
    return _BOUNDS[op] in (operator.add, operator.mul) or (type(divisor) is int and divisor > 0)


def _result_bound(bound_of: Callable[[int, int], int], left: object, right: object) -> int:
    """Return the bound of an integer result.

    ``bound_of`` computes it from the bounds of the operands. If the bound would be too large, guard that the
    operands fit into 32 bits.
    """
    bound = bound_of(_bound(left), _bound(right))
    if bound > WORD:
        _keep_small(left)
        _keep_small(right)
        bound = bound_of(_bound(left), _bound(right))
    return bound


def _number(value: object) -> Any:
    """Return an operand as a symbolic number or a Python number."""
    if type(value) is Scalar:
        return value.number
    return value.item() if isinstance(value, np.generic) else value


def _value(value: object) -> Any:
    """Return the current value of an operand."""
    return value.example if type(value) is Scalar else value


def _bound(value: Any) -> int:
    """Return a number that is greater than the absolute value of an integer operand."""
    return value.bound if type(value) is Scalar else abs(int(value)) + 1


def _keep_small(value: object) -> None:
    """If an integer fits into 32 bits now, guard that it does. Any other operand needs no guard."""
    if type(value) is Scalar and value.bound > _SMALL and -_SMALL < value.example < _SMALL:
        specialize = value.trace.torch.specialize
        if specialize(value.number < _SMALL) and specialize(value.number > -_SMALL):
            value.bound = _SMALL


def _new_scalar(scalar: Scalar, op: Callable[[Any, Any], Any], left: Any, right: Any, bound: int) -> Any:
    """Return the scalar for the result of ``op``.

    Return NotImplemented if the example of the result is not finite, or has another class.
    """
    example = op(_value(left), _value(right))
    if type(example) not in _KINDS or not np.isfinite(example):
        return NotImplemented
    number = op(_number(left), _number(right))
    if not isinstance(number, (torch.SymInt, torch.SymFloat)):
        return example
    return Scalar(scalar.trace, number, example, bound)


def negative(value: Scalar) -> Any:
    """Return ``-value``, or NotImplemented if NumPy must compute the result."""
    if type(value.example) not in (np.float64, np.float32, np.int64) or value.is_concrete:
        return NotImplemented
    return Scalar(value.trace, -value.number, -value.example, value.bound)


def _compute(self: Scalar, function: Callable[..., Any], operands: tuple[Any, ...]) -> Any:
    """Apply an operator that C code calls on a scalar.

    ``define_methods`` makes the operator methods of ``Scalar`` from this function.
    """
    return self.trace.calls.binary(function, *operands)


def _compute_reflected(self: Scalar, function: Callable[..., Any], operands: tuple[Any, ...]) -> Any:
    """Apply an operator with the scalar as right operand. The left operand is not a scalar.

    ``operands`` begins with the right operand.
    """
    return self.trace.calls.binary(function, *operands[::-1])


def _compute_concrete(self: Scalar, function: Callable[..., Any], operands: tuple[Any, ...]) -> Any:
    """Make the scalar a constant, and apply a function that reads its value."""
    return function(self.settle(), *operands[1:])


_ARITHMETIC = tuple(name for name in ARITHMETIC_NAMES if name != "matmul")
"""Names of the binary operators of scalars."""
_CONSTANT = (
    *(bool, int, float, complex, operator.index, hash, repr, str, format, round, divmod),
    *(math.trunc, math.floor, math.ceil, abs, operator.pos, operator.neg, operator.invert),
)
"""Functions that read the value of a scalar. It becomes a constant."""
define_methods(Scalar, {name: function_of(name) for name in (*_ARITHMETIC, *COMPARISON_NAMES)}, _compute)
define_methods(Scalar, {f"r{name}": function_of(name) for name in _ARITHMETIC}, _compute_reflected)
define_methods(Scalar, {fn.__name__: fn for fn in _CONSTANT}, _compute_concrete)
