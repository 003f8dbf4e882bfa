"""Lower cumulative sums, products, extremes and log-sums along a dimension.

The accumulator has eager's precision: sums and products of float32 accumulate in float64, those of half
precision in float32.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

import torch

from fxstack_inductor.errors import NotLowered
from fxstack_inductor.ir.expr import Expr, product
from fxstack_inductor.ir.nodes import Body, Call, Indirect, Node, value_dtype
from fxstack_inductor.lower.context import Context, broadcast_coords, cast, read
from fxstack_inductor.lower.elementwise.pointwise import BOOL, call, like
from fxstack_inductor.lower.indexing.cat_pad_gather import require_elements
from fxstack_inductor.lower.indexing.views import reshape_coords, wrap
from fxstack_inductor.lower.registry import Registry

registry = Registry()
rule = registry.rule


def running(ctx: Context, x: Node, dim: int, op: str, result: torch.dtype) -> Node:
    """Return the running ``op`` over the elements of ``x`` along ``dim``, as dtype ``result``."""
    if not x.shape:
        raise NotLowered("scan of a scalar")
    register = value_dtype(result)
    state = torch.float64 if result is torch.float32 and op not in {"max", "min"} else register
    where = wrap(dim, len(x.shape))
    return ctx.scan(op, x.shape, where, result, lambda index: cast(read(x, index), register), state=state)


def _sum(op: str) -> Callable[..., Node]:
    """Return the rule of a cumulative sum or product."""

    def lower(ctx: Context, x: Node, dim: int, *, dtype: torch.dtype | None = None) -> Node:
        """Lower a cumulative sum or product; integers accumulate as int64."""
        whole = not x.dtype.is_floating_point
        return running(ctx, x, dim, op, dtype or (torch.int64 if whole else x.dtype))

    return lower


registry.add("cumsum.default", _sum("sum"))
registry.add("cumprod.default", _sum("prod"))


@rule("logcumsumexp.default")
def logcumsumexp(ctx: Context, x: Node, dim: int) -> Node:
    return running(ctx, x, dim, "logaddexp", x.dtype)


def _extreme(op: str) -> Callable[..., tuple[Node, Node]]:
    """Return the rule of a cumulative extreme, which returns values and positions."""

    def lower(ctx: Context, x: Node, dim: int) -> tuple[Node, Node]:
        """Lower a cumulative extreme: two scans over the same elements."""
        values = running(ctx, x, dim, op, x.dtype)
        where = ctx.scan(
            f"arg{op}",
            x.shape,
            wrap(dim, len(x.shape)),
            torch.int64,
            lambda index: read(x, index),
            state=torch.int64,
        )
        return values, where

    return lower


registry.add("cummax.default", _extreme("max"))
registry.add("cummin.default", _extreme("min"))


@rule("masked_scatter.default")
def masked_scatter(ctx: Context, x: Node, mask: Node, source: Node) -> Node:
    """Lower ``masked_scatter``: copy the elements of ``source``, in order, where ``mask`` is true."""
    require_elements(source)
    if mask.dtype is not BOOL:
        raise NotLowered("a mask of integers, which eager refuses")
    shape = ctx.sizes()
    count = (product(shape),)

    def chosen(index: Sequence[Expr]) -> Body:
        coords = reshape_coords(shape, count, index)
        return read(mask, broadcast_coords(mask.shape, coords))

    # The n-th true element of the mask takes element n - 1 of ``source``; a running sum of the mask counts n.
    holds = ctx.pointwise(count, BOOL, chosen)
    rank = running(ctx, holds, 0, "sum", torch.int64)
    total = (product(source.shape),)
    elements = ctx.pointwise(
        total, source.dtype, lambda index: read(source, reshape_coords(source.shape, total, index))
    )

    def body(index: Sequence[Expr]) -> Body:
        """Return the element of ``source`` or, where the mask is false, of ``x``."""
        (at,) = reshape_coords(count, shape, index)
        inside, source = read(holds, (at,)), read(rank, (at,))
        source = Call("where", (inside, call("sub", source, like(source, 1)), like(source, 0)), source.dtype)
        value = read(elements, (Indirect(source, total[0], wraps=False),))
        return Call("where", (inside, value, read(x, broadcast_coords(x.shape, index))), value.dtype)

    return ctx.pointwise(shape, x.dtype, body)
