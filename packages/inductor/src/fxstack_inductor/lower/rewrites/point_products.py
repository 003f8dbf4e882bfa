"""Compute convolutions of single points as products of matrices, where channels-last images are rows of channels already.

``channels_last`` lays the images out. The lowering of such a convolution is the product, so the graph gets no further
nodes, whose fake values cost more than the rest of the lowering.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch.fx import GraphModule
from torch.fx import Node as FxNode

from fxstack_inductor.ir.expr import ZERO, Expr, product
from fxstack_inductor.ir.nodes import (
    Call,
    Extern,
    ExternCall,
    Layout,
    Node,
    View,
    contiguous_layout,
    value_dtype,
)
from fxstack_inductor.lower.context import Context, cast, read
from fxstack_inductor.lower.indexing.views import reshape_coords
from fxstack_inductor.lower.layouts import strided_view

aten = torch.ops.aten
CONVOLUTION = aten.convolution.default


def is_product(node: FxNode) -> bool:
    """Whether a convolution multiplies each point of the images by one matrix."""
    _, weights, _, stride, padding, dilation, transposed, _, groups = node.args
    plain = [*weights.meta["val"].shape[2:], *stride, *dilation, groups] == [1] * 7 and not any(padding)
    return plain and not transposed


def point_products(graph_module: GraphModule) -> dict[str, Callable[..., Any]]:
    """Return the lowering rules, by node name, of the convolutions of channels-last images that are products."""
    nodes = graph_module.graph.find_nodes(op="call_function", target=CONVOLUTION)
    return {node.name: _multiply for node in nodes if _has_images(node) and is_product(node)}


def _has_images(node: FxNode) -> bool:
    """Whether the node's images are channels last."""
    values = node.args[0].meta["val"], node.meta["val"]
    return all(v.dim() == 4 and v.is_contiguous(memory_format=torch.channels_last) for v in values)


def _multiply(ctx: Context, images: Node, weights: Node, bias: Node | None, *_: object) -> Node:
    """Lower the convolution to the product of points by channels, and add the bias."""
    count, channels, height, width = images.shape
    outer, results = (count, height, width), weights.shape[0]
    points = product(outer)

    def point(index: Sequence[Expr]) -> list[Expr]:
        n, y, x = reshape_coords(outer, (points,), index[:1])
        return [n, index[1], y, x]

    rows = ctx.view(images, (points, channels), point)
    matrix = ctx.view(weights, (channels, results), lambda index: [index[1], index[0], ZERO, ZERO])
    strides = weights.layout.stride
    matrix.layout = Layout(matrix.shape, (strides[1], strides[0]), weights.dtype, weights.device)
    operands = _in_memory(ctx, rows, images), _in_memory(ctx, matrix, weights)
    name = f"{ctx.current}_product"
    call = ExternCall(name, aten.mm.default, operands, {}, operands, comment=ctx.comment)
    layout = contiguous_layout((points, results), images.dtype, images.device)
    multiplied = Extern(name=name, layout=layout, origin=ctx.current, call=call, comment=ctx.comment)
    call.outputs.append(multiplied)
    ctx.nodes.append(call)

    def place(index: Sequence[Expr]) -> list[Expr]:
        n, channel, y, x = index
        return [(n * height + y) * width + x, channel]

    shape = (count, results, height, width)
    if bias is None:
        return ctx.view(multiplied, shape, place)
    dtype = value_dtype(images.dtype)
    return ctx.pointwise(
        shape,
        images.dtype,
        lambda index: Call(
            "add", (read(multiplied, place(index)), cast(read(bias, [index[1]]), dtype)), dtype
        ),
    )


def _in_memory(ctx: Context, view: View, base: Node) -> Node:
    """Return a view that is a window of memory, else a copy of its elements."""
    if not isinstance(base, View):  # all its elements, in the order of its memory
        view.window = view.layout, base.layout, (base, ZERO)
        return view
    if strided_view(view) is not None:
        return view
    return ctx.pointwise(view.shape, view.dtype, lambda index: read(view, index))
