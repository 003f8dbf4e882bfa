"""Whether an integer expression can overflow 64 bits in a compiled guard. An overflowing guard would always fail.

Python's integers are unbounded. The integers of compiled guards (``native/guard_tree/shape_program.c``) are not.
Therefore the trace specialises larger numbers (hashes, random number generators written in Python) to their
present values.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

import sympy

from fxstack_capture.torch_compat import LShift, PowByNatural

_LIMIT = 1 << 62
"""Numbers from this bound on may overflow 64 bits in a guard."""
_UNBOUNDED = (sympy.Add, sympy.Mul, sympy.Pow, PowByNatural, LShift)
"""Operations whose result may be larger than their operands."""
_MAX_GUARDED = 1 << 61
"""The absolute value below which ``fits`` guards an expression."""


def unbounded_parts(expr: sympy.Basic) -> list[sympy.Basic]:
    """Return the outermost sums, products and powers in ``expr``. If these fit 64 bits, all of ``expr`` does."""
    if isinstance(expr, _UNBOUNDED):
        return [expr]
    return [part for child in expr.args for part in unbounded_parts(child)]


def fits(expr: sympy.Basic) -> sympy.Basic:
    """Return the condition that ``expr`` is far from the limits of 64 bits, for a guard."""
    return sympy.And(expr < _MAX_GUARDED, expr > -_MAX_GUARDED)


class OverflowGuards:
    """Overflow checks for the expressions of one environment. ``values`` has the present values of its symbols."""

    def __init__(self, values: Mapping[sympy.Symbol, Any]) -> None:
        self._values = values
        self._bounds: dict[sympy.Basic, float] = {}
        """The results of ``_bound`` by expression."""

    def may_overflow(self, expr: sympy.Basic) -> bool:
        """Whether a part of ``expr`` may overflow for the present values.

        If so, the trace makes the symbols of ``expr`` constants. The bounds are rough: they ignore signs.
        """
        return isinstance(expr, sympy.Basic) and self._bound(expr) >= _LIMIT

    def _bound(self, expr: sympy.Basic) -> float:
        """Return the cached result of ``_compute_bound``, or infinity from ``_LIMIT`` on."""
        cached = self._bounds.get(expr)
        if cached is None:
            bound = self._compute_bound(expr)
            cached = self._bounds[expr] = bound if bound < _LIMIT else math.inf
        return cached

    def _compute_bound(self, expr: sympy.Basic) -> float:
        """Return the largest absolute value of an integer in ``expr``; infinity if it is too large."""
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
