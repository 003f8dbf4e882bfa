"""Express computed indices by loop coordinates: an index from ``arange`` needs no look-up and no check."""

from __future__ import annotations

from collections.abc import Mapping

import torch

from fxstack_inductor.ir.expr import Expr, Var, in_range, integer
from fxstack_inductor.ir.nodes import Body, Call, Const, Coord, Index, Indirect, Pointwise, Read

MAX_DEPTH = 16
"""Longest chain of operators between an index and the coordinates from which it is computed."""
ARITHMETIC = {"add": Expr.__add__, "sub": Expr.__sub__, "mul": Expr.__mul__}


def index_coord(body: Body, size: Expr, *, wraps: bool = True) -> Coord:
    """Return the computed index ``body`` as a coordinate of a dimension of ``size``.

    An index that is provably in range needs no look-up and no check; others become ``Indirect``.
    """
    position = affine(body, {})
    if position is not None and in_range(position, size):
        return position
    if position is not None and wraps and in_range(position + size, size):
        return position + size
    return Indirect(body, size, wraps=wraps)


def affine(body: Body, values: Mapping[Var, Expr], depth: int = MAX_DEPTH) -> Expr | None:
    """Return the int64 ``body`` as an index expression over ``values``, or None if ``body`` reads memory.

    An index expression cannot overflow but int64 can, so the caller must check that the result is within a
    tensor's size.
    """
    if depth == 0 or body.dtype != torch.int64:
        return None
    match body:
        case Index(expr):
            return expr.subs(values)
        case Const(value):
            return integer(int(value))
        case Call(op, (left, right)) if op in ARITHMETIC:
            a, b = affine(left, values, depth - 1), affine(right, values, depth - 1)
            return None if a is None or b is None else ARITHMETIC[op](a, b)
        case Read(node, coords) if isinstance(node, Pointwise):
            inner: dict[Var, Expr] = {}
            for index, coord in zip(node.index, coords, strict=True):
                if isinstance(coord, Indirect):
                    return None
                var = index.as_var()
                if var is not None:
                    inner[var] = coord.subs(values)
            return affine(node.body, inner, depth - 1)
        case _:
            return None
