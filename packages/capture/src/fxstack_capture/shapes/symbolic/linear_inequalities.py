"""Comparisons of one symbol with numbers, such as ``2*s0 + 1 > 8``, decided by integer arithmetic.

Most comparisons of sizes in programs have this form. ShapeEnv decides them by sympy's assumptions about sums
and products, which takes milliseconds each. This module takes a comparison of ``slope*symbol + offset`` with
zero. It computes the set of integers for which the comparison holds: ``symbol >= n``, ``symbol <= n``,
``symbol == n``, or the complement of such a set. The conversion is exact, because symbols are integers.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, TypeAlias

import sympy

Line: TypeAlias = tuple[sympy.Symbol | None, int, int]
"""The expression ``slope*symbol + offset`` as (symbol, slope, offset). For a constant, the symbol is None."""

RELATIONS: Mapping[str, Any] = {
    "gt": sympy.Gt,
    "ge": sympy.Ge,
    "lt": sympy.Lt,
    "le": sympy.Le,
    "eq": sympy.Eq,
    "ne": sympy.Ne,
}
"""Maps names of operators to sympy's relations."""
_NAMES = {cls: name for name, cls in RELATIONS.items()}


@dataclass(frozen=True, slots=True)
class Question:
    """The question whether ``symbol`` is between ``low`` and ``high``, inclusive. None stands for a missing
    bound.

    If ``negated``, the question is whether it is not.
    """

    symbol: sympy.Symbol
    low: int | None
    high: int | None
    negated: bool = False

    @property
    def is_point(self) -> bool:
        """Whether the interval has only one value."""
        return self.low is not None and self.low == self.high

    def answer(self, low: int | None, high: int | None) -> bool | None:
        """Return the answer if it is the same for all integers in the known range. Otherwise return None.

        The known range is from ``low`` to ``high``.
        """
        first, last = _limits(low, high)
        question_first, question_last = _limits(self.low, self.high)
        if last < question_first or question_last < first:
            return self.negated
        return not self.negated if question_first <= first and last <= question_last else None

    def remaining(self, *, answer: bool) -> tuple[int | None, int | None]:
        """Return the new bounds of the symbol, (low, high), after a question with one bound has been
        answered.
        """
        if answer is not self.negated:
            return self.low, self.high
        if self.low is not None:
            return None, self.low - 1
        assert self.high is not None
        return self.high + 1, None


def _limits(low: int | None, high: int | None) -> tuple[float, float]:
    """Return the bounds as numbers. A missing bound becomes an infinity. Python compares integers and
    infinities exactly.
    """
    return -math.inf if low is None else low, math.inf if high is None else high


def line_of(expr: sympy.Basic) -> Line | None:
    """Return ``expr`` as ``slope*symbol + offset``. None if it does not have this form."""
    if isinstance(expr, sympy.Integer):
        return None, 0, int(expr)
    if isinstance(expr, sympy.Symbol):
        return (expr, 1, 0) if expr.is_integer else None
    if len(expr.args) != 2 or not isinstance(expr.args[0], sympy.Integer):
        return None
    number, rest = int(expr.args[0]), expr.args[1]
    if isinstance(expr, sympy.Mul):
        return (rest, number, 0) if isinstance(rest, sympy.Symbol) and rest.is_integer else None
    if not isinstance(expr, sympy.Add) or isinstance(rest, sympy.Add):
        return None
    term = line_of(rest)
    return None if term is None else (term[0], term[1], term[2] + number)


def difference(left: sympy.Basic, right: sympy.Basic) -> Line | None:
    """Return ``left - right`` as ``slope*symbol + offset``. None if it has another form, for example two
    symbols.
    """
    minuend = line_of(left)
    subtrahend = None if minuend is None else line_of(right)
    if minuend is None or subtrahend is None:
        return None
    symbol = subtrahend[0] if minuend[0] is None else minuend[0]
    if symbol is not None and subtrahend[0] not in (None, symbol):
        return None
    slope = minuend[1] - subtrahend[1]
    return symbol if slope else None, slope, minuend[2] - subtrahend[2]


def question(relation: sympy.Basic) -> Question | bool | None:
    """Return the question that a comparison asks about its symbol.

    If the comparison has no symbol, return its truth value. Return None for a comparison of another form.
    """
    name = _NAMES.get(type(relation))
    line = None if name is None else difference(*relation.args)
    if name is None or line is None:
        return None
    symbol, slope, offset = line
    if name in ("lt", "le"):
        slope, offset = -slope, -offset
    if symbol is None:
        return _compare_with_zero(name, offset)
    if name in ("eq", "ne"):
        value, remainder = divmod(-offset, slope)
        return name == "ne" if remainder else Question(symbol, value, value, name == "ne")
    least = (1 if name in ("gt", "lt") else 0) - offset
    if slope > 0:
        return Question(symbol, -(-least // slope), None)
    return Question(symbol, None, least // slope)


def _compare_with_zero(name: str, number: int) -> bool:
    """Return the truth value of the comparison ``name`` (such as ``gt``) of ``number`` with zero."""
    if name in ("eq", "ne"):
        return (number == 0) is (name == "eq")
    return number > 0 if name in ("gt", "lt") else number >= 0
