"""Fold batch norms with running statistics into the weights of the convolutions before them."""

from __future__ import annotations

import operator
from typing import Any

import torch
from torch.fx import Graph
from torch.fx import Node as FxNode

from fxstack_inductor.freezing.constants import is_evaluated_norm

aten = torch.ops.aten
DTYPES = (torch.float32, torch.float64)


def fold_norms(graph: Graph, constant: set[FxNode]) -> int:
    """Fold the norms of ``graph`` in place; return how many were folded.

    ``constant`` are the nodes that depend on the model's state alone.
    """
    folded = 0
    for node in list(graph.nodes):
        if node.op == "call_function" and is_evaluated_norm(node) and _foldable(node, constant):
            _fold(graph, node)
            folded += 1
    return folded


def _foldable(node: FxNode, constant: set[FxNode]) -> bool:
    """Whether the batch norm follows a convolution whose result nothing else reads, and all its parameters are constant."""
    convolution, *state = node.args[:5]
    if not isinstance(convolution, FxNode) or convolution.target is not aten.convolution.default:
        return False
    _, weight, bias, _, _, _, transposed = convolution.args[:7]
    if transposed or len(convolution.users) != 1 or None in state[2:]:
        return False
    tensors = [v for v in (weight, bias, *state) if v is not None]
    one_dtype = {v.meta["val"].dtype for v in tensors} | {convolution.meta["val"].dtype}
    alone = all(u.target is operator.getitem and (u.args[1] == 0 or not u.users) for u in node.users)
    return alone and all(v in constant for v in tensors) and len(one_dtype) == 1 and one_dtype <= set(DTYPES)


def _fold(graph: Graph, node: FxNode) -> None:
    """Scale the weight of the convolution by the norm, move the shift into its bias, and drop the norm."""
    convolution, gamma, beta, mean, variance = node.args[:5]
    eps = node.args[-1]
    _, weight, bias = convolution.args[:3]
    with graph.inserting_before(convolution):
        scale = emit(graph, aten.rsqrt.default, emit(graph, aten.add.Scalar, variance, eps))
        if gamma is not None:
            scale = emit(graph, aten.mul.Tensor, scale, gamma)
        shape = [-1, *([1] * (weight.meta["val"].dim() - 1))]
        column = emit(graph, aten.view.default, scale, shape)
        scaled = emit(graph, aten.mul.Tensor, weight, column)
        moved = emit(graph, aten.neg.default, mean)
        if bias is not None:
            moved = emit(graph, aten.add.Tensor, moved, bias)
        moved = emit(graph, aten.mul.Tensor, moved, scale)
        if beta is not None:
            moved = emit(graph, aten.add.Tensor, moved, beta)
    convolution.update_arg(1, scaled)
    convolution.update_arg(2, moved)
    for user in list(node.users):
        user.replace_all_uses_with(convolution)
        graph.erase_node(user)
    graph.erase_node(node)


def emit(graph: Graph, target: Any, *args: Any) -> FxNode:
    """Insert a call of ``target`` and return it; its fake value is computed from the arguments' fake values."""
    node = graph.call_function(target, args)
    values = [a.meta["val"] if isinstance(a, FxNode) else a for a in args]
    with values[0].fake_mode:
        node.meta["val"] = target(*values)
    return node
