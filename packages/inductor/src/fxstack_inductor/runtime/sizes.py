"""Evaluate many expressions of few symbols at once; equal expressions are computed once."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

from fxstack_inductor.ir.expr import Expr


@dataclass(eq=False)
class Sizes:
    """``sizes(values)`` returns the values of ``exprs`` for the given ``values`` of ``symbols``."""

    symbols: Sequence[str]
    exprs: Sequence[Expr]
    different: list[Expr] = field(init=False)
    places: list[int] = field(init=False)

    def __post_init__(self) -> None:
        numbers: dict[Expr, int] = {}
        self.places = [numbers.setdefault(expr, len(numbers)) for expr in self.exprs]
        self.different = list(numbers)

    def __call__(self, values: Sequence[int]) -> list[int]:
        known = dict(zip(self.symbols, values, strict=True))
        found = [expr.evaluate(known) for expr in self.different]
        return [found[place] for place in self.places]
