"""Sum squared deviations from a mean in the pass that sums the elements, in place of a second pass.

A variance of single-precision numbers is summed in double precision: ``s = sum(x)``, and ``sum((x - s / n) ** 2)`` in a second
pass. Here ``d = x - b`` with the first element ``b``: ``sum((x - s / n) ** 2) = sum(d * d) - sum(d) ** 2 / n``. The square of
the first element's deviation is part of the result, so that the squares that cancel are at most ``n`` times as large as the
result: it is more precise than single precision. Equal elements give exactly 0.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import replace

import torch

from fxstack_inductor.ir.analysis import Analysis, analyse
from fxstack_inductor.ir.bounds import VarKind
from fxstack_inductor.ir.expr import ZERO, Expr, Var, product, value_var
from fxstack_inductor.ir.kernel import (
    Check,
    Compute,
    Constant,
    IndexValue,
    Kernel,
    Load,
    Reduce,
    Value,
    index_operands,
    operands,
    with_expressions,
    with_operands,
)

# Limits: sums of unknown length, and of values that are read at places from memory or under conditions, take two passes.

POINTS = range(32, 1 << 20)
"""Numbers of elements: fewer are not worth the first element, more would lose precision."""
AGAIN = 24
"""The most values that are computed again for the first element."""
DOUBLE = torch.float64


def in_one_pass(kernel: Kernel) -> Kernel:
    """Return ``kernel`` with one pass in place of two for each variance of single-precision numbers."""
    while (found := next(_variances(analyse(kernel)), None)) is not None:
        kernel = without_unused(_Rewriter(kernel, *found).rewritten())
    return kernel


def _variances(facts: Analysis) -> Iterator[tuple[int, int, int]]:
    """Yield the positions of an element, of the sum of the elements, and of the sum of squared deviations from their mean."""
    kernel, count = facts.kernel, _count(facts.kernel)
    place = {value: k for k, value in enumerate(kernel.values)}

    def position(op: str, *args: int | None) -> int | None:
        taken = tuple(k for k in args if k is not None)
        made = Reduce(op, taken, DOUBLE) if op == "sum" else Compute(op, taken, DOUBLE)
        return place.get(made) if len(taken) == len(args) else None

    number = place.get(Constant(repr(float(count)), DOUBLE))
    for x, value in enumerate(kernel.values if count in POINTS else ()):
        if not isinstance(value, Compute) or (value.op, value.dtype) != ("cast", DOUBLE):
            continue
        if kernel.values[value.args[0]].dtype is not torch.float32 or not _repeatable(facts, x):
            continue
        total = position("sum", x)
        deviation = position("sub", x, position("div", total, number))
        squares = position("sum", position("mul", deviation, deviation))
        if total is not None and squares is not None:
            yield x, total, squares


def _count(kernel: Kernel) -> int:
    """Return the number of inner points; 0 if it is unknown."""
    return product(loop.extent for loop in kernel.inner).as_int() or 0


def _inner(facts: Analysis, x: int) -> list[int]:
    """Return the values that change along the inner loops among those that ``x`` is computed from, and ``x``."""
    return [k for k in facts.needed([x], stop=facts.outer) if facts.inner[k]]


def _repeatable(facts: Analysis, x: int) -> bool:
    """Whether the value at ``x`` changes along the inner loops, and may be computed for the first point beforehand."""
    again = [facts.kernel.values[k] for k in _inner(facts, x)]
    reads = [v for v in again if isinstance(v, Load)]
    return (
        0 < len(again) <= AGAIN
        and all(isinstance(v, (Load, Compute, IndexValue)) for v in again)
        and not any(operands(v) or v.buffer in facts.kernel.written for v in reads)
    )


class _Rewriter:
    """Copies the values of a kernel, with other sums for one variance."""

    def __init__(self, kernel: Kernel, x: int, total: int, squares: int) -> None:
        self.facts = analyse(kernel)
        self.x, self.total, self.squares = x, total, squares
        self.values: list[Value] = []
        self.places: dict[int, int] = {}
        """The copies of the values, by position."""

    def rewritten(self) -> Kernel:
        """Return the kernel with the new sums; the values of the old sums are left without use."""
        kernel = self.facts.kernel
        for k, value in enumerate(kernel.values):
            if k == self.total:
                self._sums()
            elif k != self.squares:
                self.places[k] = self._add(_moved(value, self.places))
        return _replaced(kernel, self.values, self.places)

    def _sums(self) -> None:
        """Add the sums of the differences from the first element, and of their squares, and the two results."""
        first = self._first()
        difference = self._compute("sub", self.places[self.x], first)
        both = (difference, self._compute("mul", difference, difference))
        total, squares = (self._add(Reduce("sum", (k,), DOUBLE)) for k in both)
        number = self._constant(_count(self.facts.kernel))
        self.places[self.total] = self._compute("add", total, self._compute("mul", number, first))
        beside = self._compute("mul", total, self._compute("div", total, number))
        self.places[self.squares] = self._compute("sub", squares, beside)

    def _first(self) -> int:
        """Add the first element, which stays 0 where it is infinite: no other element would count beside it."""
        start = {loop.var: ZERO for loop in self.facts.kernel.inner}
        places = dict(self.places)
        for k in _inner(self.facts, self.x):
            value = _moved(self.facts.kernel.values[k], places)
            places[k] = self._add(with_expressions(value, lambda expr: expr.subs(start)))
        first, zero = places[self.x], self._constant(0)
        finite = Compute("eq", (self._compute("sub", first, first), zero), torch.bool)
        return self._compute("where", self._add(finite), first, zero)

    def _compute(self, op: str, *args: int) -> int:
        return self._add(Compute(op, args, DOUBLE))

    def _constant(self, number: float) -> int:
        return self._add(Constant(repr(float(number)), DOUBLE))

    def _add(self, value: Value) -> int:
        """Return the position of ``value``, new or not."""
        if value in self.values:
            return self.values.index(value)
        self.values.append(value)
        return len(self.values) - 1


def without_unused(kernel: Kernel) -> Kernel:
    """Return ``kernel`` without the values that no store and no check needs."""
    roots = {k for s in kernel.stores for k in (s.value, *index_operands(s.index))}
    roots.update(k for k, value in enumerate(kernel.values) if isinstance(value, Check))
    kept, places = list[Value](), dict[int, int]()
    for k in analyse(kernel).needed(sorted(roots)):
        places[k] = len(kept)
        kept.append(_moved(kernel.values[k], places))
    return _replaced(kernel, kept, places)


def _moved(value: Value, places: Mapping[int, int]) -> Value:
    """Return ``value`` with the operands at ``places``."""
    return with_expressions(with_operands(value, places), lambda expr: _renamed(expr, places))


def _renamed(expr: Expr, places: Mapping[int, int]) -> Expr:
    names = {Var(f"v{k}", VarKind.VALUE): value_var(f"v{places[k]}") for k in index_operands(expr)}
    return expr.subs(names) if names else expr


def _replaced(kernel: Kernel, values: list[Value], places: Mapping[int, int]) -> Kernel:
    """Return ``kernel`` with other values; ``places``: where those are that the stores use."""
    stores = (replace(s, index=_renamed(s.index, places), value=places[s.value]) for s in kernel.stores)
    return replace(kernel, values=tuple(values), stores=tuple(stores))
