"""Lower operators that create tensors (fills, ranges) and triangular masks."""

# ruff: noqa: ARG001 - a rule has its operator's signature
from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch

from fxstack_inductor.errors import NotLowered
from fxstack_inductor.ir.expr import Expr, as_expr
from fxstack_inductor.ir.nodes import Call, Index, Node, value_dtype
from fxstack_inductor.lower.context import Context, cast, constant, read
from fxstack_inductor.lower.elementwise.pointwise import REGISTER_DTYPES
from fxstack_inductor.lower.registry import Registry

registry = Registry()
rule = registry.rule


def fill(ctx: Context, value: Any) -> Node:
    """Return a tensor with the current FX node's shape and dtype, filled with ``value``."""
    dtype = ctx.value.dtype
    if dtype not in REGISTER_DTYPES:
        raise NotLowered(f"dtype {dtype}")
    if isinstance(value, Expr):
        body = cast(Index(value), value_dtype(dtype))
        return ctx.pointwise(ctx.sizes(), dtype, lambda _: body)
    if isinstance(value, (torch.SymFloat, torch.SymBool)):
        raise NotLowered("symbolic fill value")
    return ctx.pointwise(ctx.sizes(), dtype, lambda _: constant(value, value_dtype(dtype)))


@rule("full.default")
def full(ctx: Context, size: object, fill_value: object, **_: object) -> Node:
    return fill(ctx, fill_value)


@rule("full_like.default", "new_full.default")
def full_like(ctx: Context, x: Node, *args: object, **_: object) -> Node:
    return fill(ctx, args[-1])


@rule("zeros.default", "zeros_like.default", "new_zeros.default")
def zeros(ctx: Context, *_: object, **__: object) -> Node:
    return fill(ctx, 0)


@rule("ones.default", "ones_like.default", "new_ones.default")
def ones(ctx: Context, *_: object, **__: object) -> Node:
    return fill(ctx, 1)


@rule("scalar_tensor.default")
def scalar_tensor(ctx: Context, value: object, **_: object) -> Node:
    return fill(ctx, value)


@rule("arange.default")
def arange(ctx: Context, end: object, **_: object) -> Node:
    return arange_step(ctx, 0, end)


@rule("arange.start", "arange.start_step")
def arange_step(ctx: Context, start: Any, end: Any, step: Any = 1, **_: Any) -> Node:
    """Lower a range of integers; ATen makes ranges of floats."""
    dtype = ctx.value.dtype
    if not all(isinstance(v, (int, Expr)) for v in (start, step)) or dtype is torch.bool:
        raise NotLowered("arange of other than integers")
    return ctx.pointwise(
        ctx.sizes(), dtype, lambda index: cast(Index(as_expr(start) + index[0] * step), value_dtype(dtype))
    )


@rule("prims::iota.default")
def iota(ctx: Context, length: object, *, start: object, step: object, **_: object) -> Node:
    return arange_step(ctx, start, length, step)


@rule("tril.default")
def tril(ctx: Context, x: Node, diagonal: int = 0) -> Node:
    return _triangle(ctx, x, "ge", diagonal)


@rule("triu.default")
def triu(ctx: Context, x: Node, diagonal: int = 0) -> Node:
    return _triangle(ctx, x, "le", diagonal)


def _triangle(ctx: Context, x: Node, op: str, diagonal: int) -> Node:
    """Return ``x`` with zeros where ``row + diagonal`` and ``column`` do not compare by ``op``."""
    from_read = value_dtype(x.dtype)
    if x.dtype not in REGISTER_DTYPES:
        raise NotLowered(f"dtype {x.dtype}")

    def body(index: Sequence[Expr]) -> Call:
        """Return the element of ``x``, or 0 outside of the triangle."""
        row, column = Index(index[-2] + diagonal), Index(index[-1])
        keep = Call(op, (row, column), torch.bool)
        return Call("where", (keep, read(x, index), constant(0, from_read)), from_read)

    return ctx.pointwise(x.shape, x.dtype, body)
