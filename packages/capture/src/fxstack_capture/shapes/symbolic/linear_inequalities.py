"""Comparisons of one symbol with numbers, ``2*s0 + 1 > 8``, decided by integer arithmetic.

Most of what programs ask of sizes is of this kind. ShapeEnv answers by sympy's assumptions about sums and products, which takes
milliseconds a question; here a comparison of ``slope*symbol + offset`` with zero is the set of integers for which it holds:
``symbol >= n``, ``symbol <= n`` or ``symbol == n``, or what is not in it. Exact, since symbols are integers.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, TypeAlias

import sympy

Line: TypeAlias = tuple[sympy.Symbol | None, int, int]
"""symbol, slope, offset"""

RELATIONS: Mapping[str, Any] = {
    "gt": sympy.Gt,
    "ge": sympy.Ge,
    "lt": sympy.Lt,
    "le": sympy.Le,
    "eq": sympy.Eq,
    "ne": sympy.Ne,
}
_NAMES = {cls: name for name, cls in RELATIONS.items()}


@dataclass(frozen=True, slots=True)
class Question:
    """Whether ``symbol`` is one of the integers from ``low`` to ``high`` (None: no bound), or, ``negated``, is not."""

    symbol: sympy.Symbol
    low: int | None
    high: int | None
    negated: bool = False

    @property
    def is_point(self) -> bool:
        return self.low is not None and self.low == self.high

    def answer(self, low: int | None, high: int | None) -> bool | None:
        """For all integers from ``low`` to ``high``; None where it depends."""
        if _below(high, self.low) or _below(self.high, low):
            return self.negated
        inside = _reaches(self.low, low) and _reaches(_opposite(self.high), _opposite(high))
        return not self.negated if inside else None

    def remaining(self, *, answer: bool) -> tuple[int | None, int | None]:
        """The bounds that follow from the answer to a question with one bound."""
        if answer is not self.negated:
            return self.low, self.high
        if self.low is not None:
            return None, self.low - 1
        assert self.high is not None
        return self.high + 1, None


def _below(high: int | None, low: int | None) -> bool:
    return high is not None and low is not None and high < low


def _reaches(outer: int | None, inner: int | None) -> bool:
    """Whether a lower bound lets in all that another one does."""
    return outer is None or (inner is not None and outer <= inner)


def _opposite(bound: int | None) -> int | None:
    return None if bound is None else -bound


def line_of(expr: sympy.Basic) -> Line | None:
    """``expr`` as ``slope*symbol + offset``; None where it is something else."""
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
    """``left - right`` as a line; None where it is none."""
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
    """What a comparison asks of its one symbol; its truth where it has none; None for anything else."""
    name = _NAMES.get(type(relation))
    line = None if name is None else difference(*relation.args)
    if name is None or line is None:
        return None
    symbol, slope, offset = line
    if name in ("lt", "le"):
        slope, offset = -slope, -offset
    if symbol is None:
        return _of_number(name, offset)
    if name in ("eq", "ne"):
        value, rest = divmod(-offset, slope)
        return name == "ne" if rest else Question(symbol, value, value, name == "ne")
    least = (1 if name in ("gt", "lt") else 0) - offset
    if slope > 0:
        return Question(symbol, -(-least // slope), None)
    return Question(symbol, None, least // slope)


def _of_number(name: str, number: int) -> bool:
    if name in ("eq", "ne"):
        return (number == 0) is (name == "eq")
    return number > 0 if name in ("gt", "lt") else number >= 0
