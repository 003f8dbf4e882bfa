"""Whether an expression of integers can leave 64 bits where it is computed: a guard on such a one would always fail.

Python's integers have no bounds, those of compiled guards (``native/shape_program.c``) do. What is decided about larger
numbers (hashes, random number generators written in Python) is decided for the present values alone.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

import sympy

from fxstack_capture.torch_compat import LShift, PowByNatural

_LIMIT = 1 << 62
_APPEND_ONLY = (sympy.Add, sympy.Mul, sympy.Pow, PowByNatural, LShift)


_MOST = 1 << 61


def unbounded_parts(expr: sympy.Basic) -> list[sympy.Basic]:
    """The sums, products and powers in ``expr`` that are in no other such: with them all its parts fit into 64 bits."""
    if isinstance(expr, _APPEND_ONLY):
        return [expr]
    return [part for child in expr.args for part in unbounded_parts(child)]


def fits(expr: sympy.Basic) -> sympy.Basic:
    """That ``expr`` is far from the ends of 64 bits."""
    return sympy.And(expr < _MOST, expr > -_MOST)


class OverflowGuards:
    """Of the expressions of one environment, whose symbols have ``values``."""

    def __init__(self, values: Mapping[sympy.Symbol, Any]) -> None:
        self._values = values
        self._bounds: dict[sympy.Basic, float] = {}

    def may_overflow(self, expr: sympy.Basic) -> bool:
        """Whether a part of ``expr`` may not fit for the present values. Bounds are rough: signs are not looked at."""
        return isinstance(expr, sympy.Basic) and self._bound(expr) >= _LIMIT

    def _bound(self, expr: sympy.Basic) -> float:
        known = self._bounds.get(expr)
        if known is None:
            bound = self._of(expr)
            known = self._bounds[expr] = bound if bound < _LIMIT else math.inf
        return known

    def _of(self, expr: sympy.Basic) -> float:
        """The largest absolute value of an integer in ``expr``; infinity if too large."""
        if isinstance(expr, sympy.Integer):
            return abs(int(expr))
        if isinstance(expr, sympy.Symbol):
            value = self._values.get(expr, 0)
            return abs(int(value)) if expr.is_integer else 0
        bounds = [self._bound(part) for part in expr.args]
        if isinstance(expr, sympy.Add):
            return sum(bounds)
        if isinstance(expr, sympy.Mul):
            return max(*bounds, math.prod(bounds))
        if isinstance(expr, (sympy.Pow, PowByNatural)):
            return max(*bounds, _power(*bounds))
        if isinstance(expr, LShift):
            return max(*bounds, bounds[0] * _power(2, bounds[1]))
        return max(bounds, default=0)


def _power(base: float, exponent: float) -> float:
    if base <= 1:
        return base
    return base**exponent if exponent < _LIMIT.bit_length() and base < _LIMIT else math.inf
