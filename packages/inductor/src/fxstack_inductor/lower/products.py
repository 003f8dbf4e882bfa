"""Matrix products as reductions of the loop IR, for targets that compute them with matrix instructions.

``mm`` is the reduction ``dot`` over ``k`` of ``a[m, k] * b[k, n]``, operands rounded to the dtype of the product. As a reduction
it fuses with what reads it, and with what its operands are computed from. These rules apply to the nodes that a target
chooses (``schedule.fusion.templates``); all other products are calls of ATen.
"""

from __future__ import annotations

from types import MappingProxyType
from typing import TYPE_CHECKING, Any

import torch

from fxstack_inductor.errors import NotLowered
from fxstack_inductor.ir.nodes import HALF_DTYPES, Call, Node, Pointwise, Read, View
from fxstack_inductor.lower.context import broadcast_coords, cast, constant, read, read_broadcast, round_to

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from fxstack_inductor.ir.expr import Expr
    from fxstack_inductor.ir.nodes import Body
    from fxstack_inductor.lower.context import Context

aten = torch.ops.aten


def mm(ctx: Context, a: Node, b: Node) -> Node:
    return _product(ctx, a, b)


def bmm(ctx: Context, a: Node, b: Node) -> Node:
    return _product(ctx, a, b)


def addmm(ctx: Context, added: Node, a: Node, b: Node, *, beta: object = 1, alpha: object = 1) -> Node:
    """``beta * added + alpha * (a @ b)``; with ``beta`` 0 ``added`` is not looked at, as in eager."""
    product = _product(ctx, a, b)
    shape = ctx.sizes()

    def body(index: Sequence[Expr]) -> Body:
        own = _scaled(cast(read(product, broadcast_coords(product.shape, index)), _F32), alpha)
        if beta == 0:
            return own
        other = _scaled(read_broadcast(added, tuple(index), _F32), beta)
        return Call("add", (other, own), _F32)

    return ctx.pointwise(shape, ctx.value.dtype, body)


def baddbmm(ctx: Context, added: Node, a: Node, b: Node, *, beta: object = 1, alpha: object = 1) -> Node:
    return addmm(ctx, added, a, b, beta=beta, alpha=alpha)


_F32 = torch.float32


def _scaled(body: Body, factor: Any) -> Body:
    return body if factor == 1 else Call("mul", (body, constant(factor, _F32)), _F32)


def _product(ctx: Context, a: Node, b: Node) -> Node:
    dtype, made = precision(a), ctx.value.dtype
    if dtype not in HALF_DTYPES or precision(b) != dtype or made not in {dtype, _F32}:
        raise NotLowered(f"a product of {a.dtype} and {b.dtype}")
    rows, depth, columns = a.shape[-2], a.shape[-1], b.shape[-1]
    batch = tuple(a.shape[:-2])

    def body(index: Sequence[Expr], reduced: Sequence[Expr]) -> Body:
        *at, m, n = index
        left, right = read(a, (*at, m, *reduced)), read(b, (*at, *reduced, n))
        return Call("mul", (round_to(left, dtype), round_to(right, dtype)), _F32)

    return ctx.reduction("dot", (*batch, rows, columns), (depth,), made, body)


def precision(node: Node) -> torch.dtype:
    """The narrowest floating dtype that is known to hold all elements: that of the tensor that ``node`` is a conversion of.

    Products of half-precision numbers are exact in float32, so matrix instructions for these compute a float32 product of them.
    """
    while isinstance(node, View) or (isinstance(node, Pointwise) and isinstance(node.body, Read)):
        if node.dtype in HALF_DTYPES:
            break
        node = node.base if isinstance(node, View) else node.body.node  # type: ignore[union-attr]
    return node.dtype


RULES: MappingProxyType[Any, Callable[..., Node]] = MappingProxyType(
    {aten.mm.default: mm, aten.bmm.default: bmm, aten.addmm.default: addmm, aten.baddbmm.default: baddbmm}
)
