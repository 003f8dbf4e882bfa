"""Whether an integer expression can overflow 64 bits in a compiled guard. An overflowing guard would always
fail.

Python's integers are unbounded. Integers of compiled guards have 64 bits
(``native/guard_tree/shape_program.c``). Therefore the trace specialises larger numbers to their current
values. Such numbers are hashes, and states of random number generators written in Python.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

import sympy

from fxstack_capture.torch_compat import LShift, PowByNatural

_LIMIT = 1 << 62
"""Numbers of this size or more may overflow 64 bits in a guard."""
_UNBOUNDED = (sympy.Add, sympy.Mul, sympy.Pow, PowByNatural, LShift)
"""Operations whose result may be larger than their operands."""
_MAX_GUARDED = 1 << 61
"""The guard of ``fits`` demands that the absolute value is below this number."""


def unbounded_parts(expr: sympy.Basic) -> list[sympy.Basic]:
    """Return the outermost sums, products and powers in ``expr``. If they fit into 64 bits, all of ``expr``
    fits.
    """
    if isinstance(expr, _UNBOUNDED):
        return [expr]
    return [part for child in expr.args for part in unbounded_parts(child)]


def fits(expr: sympy.Basic) -> sympy.Basic:
    """Return the condition that ``expr`` is far from the limits of 64 bits, for a guard."""
    return sympy.And(expr < _MAX_GUARDED, expr > -_MAX_GUARDED)


class OverflowGuards:
    """Overflow checks for the expressions of one environment. ``values`` maps its symbols to their current
    values.
    """

    def __init__(self, values: Mapping[sympy.Symbol, Any]) -> None:
        self._values = values
        self._bounds: dict[sympy.Basic, float] = {}
        """Maps an expression to the result of ``_bound``."""

    def may_overflow(self, expr: sympy.Basic) -> bool:
        """Whether a part of ``expr`` may overflow for the current values.

        If so, the trace makes the symbols of ``expr`` constants. The bounds are rough, because they ignore
        signs.
        """
        return isinstance(expr, sympy.Basic) and self._bound(expr) >= _LIMIT

    def _bound(self, expr: sympy.Basic) -> float:
        """Return the cached result of ``_compute_bound``. From ``_LIMIT`` on, return infinity."""
        cached = self._bounds.get(expr)
        if cached is None:
            bound = self._compute_bound(expr)
            cached = self._bounds[expr] = bound if bound < _LIMIT else math.inf
        return cached

    def _compute_bound(self, expr: sympy.Basic) -> float:
        """Return an upper bound of the absolute values in ``expr``, or infinity if they are too large."""
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
    """Return ``base**exponent``, or infinity if the power is large."""
    if base <= 1:
        return base
    return base**exponent if exponent < _LIMIT.bit_length() and base < _LIMIT else math.inf
