"""Find sums that a split can compute beside the reduction that they depend on, in one pass over the elements.

A softmax sums ``exp(x - m)``, where ``m`` is the maximum of ``x``; a variance sums ``(x - c) ** 2``, where ``c`` is the mean.
Each part can sum with a centre of its own, its maximum or its mean. The reduction of the parts moves these sums to the
common centre: ``s * exp(m_part - m)`` and ``s + count * (c_part - c) ** 2``. ``tiling.one_pass`` does the same within a kernel.
"""

from __future__ import annotations

from collections.abc import Mapping
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

    def term(self, value: Body, at: tuple[Expr, ...], count: Expr) -> Body:
        """Return what the part at the coordinates ``at`` sums for ``value``; the part has ``count`` elements."""
        own = Read(self.beside.partial, at)
        dtype = own.dtype
        if self.squares:
            centre: Body = Call("div", (own, Call("cast", (Index(count),), dtype)), dtype)
            difference = Call("sub", (value, centre), dtype)
            return Call("mul", (difference, difference), dtype)
        # A part of -inf sums to 0, and a part with inf to inf.
        endless = Call("eq", (Call("abs", (own,), dtype), Const(float("inf"), dtype)), torch.bool)
        centre = Call("where", (endless, Const(0.0, dtype), own), dtype)
        return Call("exp", (Call("sub", (value, centre), dtype),), dtype)

    def moved(self, total: Read, count: Expr) -> Body:
        """Return the sum ``total`` of a part of ``count`` elements for the common centre."""
        own = Read(self.beside.partial, total.coords)
        dtype = own.dtype
        if not self.squares:
            factor = Call("exp", (Call("sub", (own, self.centre), dtype),), dtype)
            return Call("mul", (total, factor), dtype)
        number = Call("cast", (Index(count),), dtype)
        shift = Call("sub", (Call("div", (own, number), dtype), self.centre), dtype)
        square = Call("mul", (number, Call("mul", (shift, shift), dtype)), dtype)
        return Call("add", (total, square), dtype)


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
