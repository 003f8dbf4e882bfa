"""Lower matrix products to reductions of the loop IR, for targets with matrix instructions.

``mm`` becomes the reduction ``dot`` over ``k`` of ``a[m, k] * b[k, n]``; operands are rounded to the dtype of
the product. The reduction fuses with its readers and with the producers of its operands. These rules apply
only to nodes that a target chooses (``autotune.candidates``); every other product is a call of ATen.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from types import MappingProxyType
from typing import Any

import torch

from fxstack_inductor.errors import NotLowered
from fxstack_inductor.ir.expr import Expr
from fxstack_inductor.ir.nodes import HALF_DTYPES, Body, Call, Node, Pointwise, Read, View
from fxstack_inductor.lower.context import (
    Context,
    broadcast_coords,
    cast,
    constant,
    read,
    read_broadcast,
    round_to,
)

aten = torch.ops.aten
PRODUCT = "product"
"""``Kernel.template`` of matrix products."""


def mm(ctx: Context, a: Node, b: Node) -> Node:
    """Lower ``a @ b`` of matrices."""
    return _product(ctx, a, b)


def bmm(ctx: Context, a: Node, b: Node) -> Node:
    """Lower ``a @ b`` of batches of matrices."""
    return _product(ctx, a, b)


def addmm(ctx: Context, added: Node, a: Node, b: Node, *, beta: object = 1, alpha: object = 1) -> Node:
    """Lower ``beta * added + alpha * (a @ b)``; with ``beta`` 0, ``added`` is not read, as in eager."""
    product = _product(ctx, a, b)
    shape = ctx.sizes()

    def body(index: Sequence[Expr]) -> Body:
        """Return the element of the sum, in float32."""
        scaled = _scaled(cast(read(product, broadcast_coords(product.shape, index)), _F32), alpha)
        if beta == 0:
            return scaled
        other = _scaled(read_broadcast(added, tuple(index), _F32), beta)
        return Call("add", (other, scaled), _F32)

    return ctx.pointwise(shape, ctx.value.dtype, body)


def baddbmm(ctx: Context, added: Node, a: Node, b: Node, *, beta: object = 1, alpha: object = 1) -> Node:
    """Lower ``addmm`` of batches of matrices."""
    return addmm(ctx, added, a, b, beta=beta, alpha=alpha)


_F32 = torch.float32


def _scaled(body: Body, factor: Any) -> Body:
    """Return ``body`` times ``factor``."""
    return body if factor == 1 else Call("mul", (body, constant(factor, _F32)), _F32)


def _product(ctx: Context, a: Node, b: Node) -> Node:
    """Return ``a @ b`` as a reduction of this template; raise ``NotLowered`` for other dtypes."""
    dtype, result_dtype = precision(a), ctx.value.dtype
    if dtype not in HALF_DTYPES or precision(b) != dtype or result_dtype not in {dtype, _F32}:
        raise NotLowered(f"a product of {a.dtype} and {b.dtype}")
    rows, depth, columns = a.shape[-2], a.shape[-1], b.shape[-1]
    batch = tuple(a.shape[:-2])

    def body(index: Sequence[Expr], reduced: Sequence[Expr]) -> Body:
        """Return the product of two elements, in float32."""
        *at, m, n = index
        left, right = read(a, (*at, m, *reduced)), read(b, (*at, *reduced, n))
        return Call("mul", (round_to(left, dtype), round_to(right, dtype)), _F32)

    reduction = ctx.reduction("dot", (*batch, rows, columns), (depth,), result_dtype, body)
    reduction.template = PRODUCT
    return reduction


def precision(node: Node) -> torch.dtype:
    """Return the narrowest float dtype known to hold all elements exactly.

    The product of two half-precision numbers is exact in float32. So matrix instructions for half precision
    also compute the float32 product of converted half-precision operands.
    """
    while isinstance(node, View) or (isinstance(node, Pointwise) and isinstance(node.body, Read)):
        if node.dtype in HALF_DTYPES:
            break
        node = node.base if isinstance(node, View) else node.body.node  # type: ignore[union-attr]
    return node.dtype


RULES: MappingProxyType[Any, Callable[..., Node]] = MappingProxyType(
    {aten.mm.default: mm, aten.bmm.default: bmm, aten.addmm.default: addmm, aten.baddbmm.default: baddbmm}
)
