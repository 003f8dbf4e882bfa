"""Kinds of variables of index expressions, and arithmetic on bounds."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from enum import StrEnum
from functools import partial, reduce
from operator import add

Bounds = tuple[int | None, int | None]
"""Inclusive lower and upper bound; None if unknown."""


class VarKind(StrEnum):
    """Where the value of a variable comes from, which decides its bounds and who passes it."""

    LOOP = "loop"
    """Runs over ``[0, extent)``."""
    SIZE = "size"
    """A symbolic size, at least 0, known when the graph is called."""
    INTEGER = "integer"
    """A symbolic integer, possibly negative, known when the graph is called."""
    VALUE = "value"
    """An integer computed or loaded in the kernel; ``name`` is the name of the value."""


def multiplied(factors: Sequence[Bounds]) -> Bounds:
    """Return the bounds of a product; unknown bounds if one of several factors may be negative."""
    low: int | None = 1
    high: int | None = 1
    for a, b in factors:
        if a is None or a < 0 or low is None:
            return (a, b) if len(factors) == 1 else (None, None)
        low *= a
        high = None if high is None or b is None else high * b
    return low, high


def combined(function: Callable[[int, int], int], left: Bounds, right: Bounds) -> Bounds:
    """Return the bounds of ``function``, which does not decrease in an operand."""
    low, high = (None if a is None or b is None else function(a, b) for a, b in zip(left, right, strict=True))
    return low, high


def added(terms: Iterable[Bounds]) -> Bounds:
    """Return the bounds of a sum."""
    start: Bounds = (0, 0)
    return reduce(partial(combined, add), terms, start)


def scaled(bounds: Bounds, scale: int) -> Bounds:
    """Return the bounds of a number multiplied by ``scale``."""
    low, high = (None if b is None else b * scale for b in bounds)
    return (low, high) if scale >= 0 else (high, low)
