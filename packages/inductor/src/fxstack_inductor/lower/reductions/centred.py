"""Find sums that a split can compute beside the reduction that they depend on, in one pass over the elements.

A softmax sums ``exp(x - m)``, where ``m`` is the maximum of ``x``; a variance sums ``(x - c) ** 2``, where ``c`` is the mean.
Each part can sum with a centre of its own, its maximum or its mean. The reduction of the parts moves these sums to the
common centre: ``s * exp(m_part - m)`` and ``s + (c_part - c) * (2 * d + count * (c_part - c))``. ``tiling.one_pass`` does the
same within a kernel.

``d`` is the sum of ``x - c_part`` of a part, not 0 because ``c_part`` is rounded: without ``d``, a variance of 1 around a mean of
1e4 has an error of 1e-5.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

import torch

from fxstack_inductor.ir.expr import Expr, extremum, integer
from fxstack_inductor.ir.nodes import (
    Body,
    Call,
    Const,
    Index,
    Node,
    Pointwise,
    Read,
    Reduction,
    children,
    substituted,
    substitution,
)

Term = Callable[[Body, tuple[Expr, ...], Expr], Body]
"""A function of a value, the coordinates of its part and the number of the part's elements: what the part sums."""


@dataclass(frozen=True, slots=True)
class Split:
    """A reduction as it was before its split, and the partial results."""

    body: Body
    op: str
    across: bool
    parts: int
    partial: Reduction


@dataclass(frozen=True, slots=True)
class Centred:
    """A sum of ``exp(value - centre)``, or (``squares``) of ``(value - centre) ** 2``; ``beside`` reduces ``value``."""

    squares: bool
    value: Body
    centre: Body
    beside: Split

    def terms(self) -> dict[str, Term]:
        """Return what a part sums, by a name for the partial result; ``moved`` takes the sums in this order."""
        if self.squares:
            return {"sum": self._square, "differences": self._difference}
        return {"sum": self._exponential}

    def _difference(self, value: Body, at: tuple[Expr, ...], count: Expr) -> Body:
        """Return the difference of ``value`` from the mean of the part at ``at``, which has ``count`` elements."""
        return Call("sub", (value, self._mean(at, count)), value.dtype)

    def _square(self, value: Body, at: tuple[Expr, ...], count: Expr) -> Body:
        difference = self._difference(value, at, count)
        return Call("mul", (difference, difference), value.dtype)

    def _exponential(self, value: Body, at: tuple[Expr, ...], _count: Expr) -> Body:
        """Return the exponential for the maximum of the part. A part of -inf sums to 0, and a part with inf to inf."""
        own = Read(self.beside.partial, at)
        dtype = own.dtype
        endless = Call("eq", (Call("abs", (own,), dtype), Const(float("inf"), dtype)), torch.bool)
        centre = Call("where", (endless, Const(0.0, dtype), own), dtype)
        return Call("exp", (Call("sub", (value, centre), dtype),), dtype)

    def _mean(self, at: tuple[Expr, ...], count: Expr) -> Body:
        own = Read(self.beside.partial, at)
        return Call("div", (own, Call("cast", (Index(count),), own.dtype)), own.dtype)

    def moved(self, totals: Sequence[Reduction], at: tuple[Expr, ...], count: Expr) -> Body:
        """Return the sums ``totals`` of the part at ``at``, which has ``count`` elements, for the common centre."""
        total, *others = (Read(node, at) for node in totals)
        dtype = total.dtype

        def call(op: str, *args: Body) -> Body:
            return Call(op, args, dtype)

        if not self.squares:
            return call("mul", total, call("exp", call("sub", Read(self.beside.partial, at), self.centre)))
        (differences,) = others
        number = call("cast", Index(count))
        shift = call("sub", self._mean(at, count), self.centre)
        twice = call("add", differences, differences)
        moved = call("add", total, call("mul", shift, call("add", twice, call("mul", number, shift))))
        # Squares that overflow are not made smaller by a product that overflows, too.
        overflow = Call("eq", (total, Const(float("inf"), dtype)), torch.bool)
        return call("where", overflow, total, moved)


def part_length(part: Expr, count: int, parts: int) -> Expr:
    """Return the number of elements of ``part``, of ``count`` in all parts; only the last part may have fewer."""
    size = -(-count // parts)
    return integer(size) if size * parts == count else extremum("min", size, integer(count) - part * size)


def find_centred(
    node: Reduction, parts: int, splits: Mapping[Node, Split], *, across: bool
) -> Centred | None:
    """Return how ``node``, a sum in ``parts`` parts, can be computed beside one of ``splits``; None: it cannot."""
    if node.op != "sum" or not node.body.dtype.is_floating_point:
        return None
    term = _defined(node.body)
    squares = isinstance(term, Call) and term.op == "mul" and term.args[0] == term.args[1]
    if not isinstance(term, Call) or not (squares or term.op == "exp"):
        return None
    difference = _defined(term.args[0])
    if not isinstance(difference, Call) or difference.op != "sub":
        return None
    value, centre = difference.args
    for reduction, split in splits.items():
        same = (split.op, split.across, split.parts) == ("sum" if squares else "max", across, parts)
        dtypes = {split.partial.dtype, value.dtype, centre.dtype, node.body.dtype}
        if same and reduction.shape == node.shape and len(dtypes) == 1 and _equal(value, split.body):
            return Centred(squares, value, centre, split) if _depends(centre, reduction, node) else None
    return None


def _defined(body: Body) -> Body:
    """Return the expression behind reads of elementwise tensors, whose elements the kernel can compute itself."""
    while isinstance(body, Read) and isinstance(body.node, Pointwise):
        if not all(isinstance(coord, Expr) for coord in body.coords):
            break
        body = substituted(body.node.body, substitution(body.node.index, body.coords))  # type: ignore[arg-type]
    return body


def _equal(one: Body, other: Body) -> bool:
    return one == other or _defined(one) == _defined(other)


def _depends(centre: Body, reduction: Node, node: Reduction) -> bool:
    """Whether ``centre`` is computed from ``reduction``, and is the same for all elements that ``node`` reduces."""
    reduced = {v for e in node.reduced for v in e.variables}
    found, waiting, seen = False, [_defined(centre)], set[int]()
    while waiting:
        body = _defined(waiting.pop())
        if id(body) in seen:
            continue
        seen.add(id(body))
        if isinstance(body, Index) and not reduced.isdisjoint(body.expr.variables):
            return False
        if isinstance(body, Read):
            plain = [coord for coord in body.coords if isinstance(coord, Expr)]
            if any(not reduced.isdisjoint(coord.variables) for coord in plain):
                return False
            found = found or body.node is reduction
        waiting.extend(children(body))
    return found
