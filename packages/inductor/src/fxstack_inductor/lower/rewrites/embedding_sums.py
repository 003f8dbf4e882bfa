"""Rewrite a sum of gradients of one embedding as one gradient over all rows.

An embedding that a model uses twice has a gradient for each use, and each has a buffer of all its rows, in float32 for
16-bit weights. ``add(embedding_dense_backward(g, i), embedding_dense_backward(h, j))`` becomes
``embedding_dense_backward(cat(g, h), cat(i, j))``: one buffer, and one kernel that fills it with zeros. The summands may be
apart in a longer sum, as where the output layer has the embedding's weight.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import torch
from torch.fx import Graph, GraphModule
from torch.fx import Node as FxNode

from fxstack_inductor.lower.registry import find_overload
from fxstack_interchange.modules import copied_graph, make_graph_module

# Limits: the gradients are rounded once, after the sum, where eager rounds each of them.

ADD, CAT, VIEW, GRADIENT = (
    find_overload(name)
    for name in ("add.Tensor", "cat.default", "view.default", "embedding_dense_backward.default")
)


@dataclass(frozen=True, slots=True)
class _Summand:
    """A value that is added to others. ``reader`` reads the sum that begins with the value."""

    value: FxNode
    rest: FxNode | None
    """What the first addition adds to ``value``; None if ``reader`` is that addition."""
    reader: FxNode


def join_gradients(graph_module: GraphModule) -> GraphModule:
    """Return a copy with gradients joined, or ``graph_module`` itself if no sum has two gradients of one embedding."""
    if sum(node.target is GRADIENT for node in graph_module.graph.nodes) < 2:
        return graph_module
    graph, _ = copied_graph(graph_module)
    joined = [node for node in list(graph.nodes) if node.target is ADD and _join(graph, node)]
    return make_graph_module(graph_module, graph) if joined else graph_module


def _join(graph: Graph, total: FxNode) -> bool:
    """Join a gradient that ``total`` adds with one that an earlier sum under it adds; return whether there are such."""
    for late, rest in _orders(total):
        if not _is_gradient(late):
            continue
        for early in _summands(total, rest):
            if _is_gradient(early.value) and _fit(early.value, late):
                _replace(graph, total, late, early)
                return True
    return False


def _summands(reader: FxNode, value: Any) -> Iterator[_Summand]:
    """Yield the summands of ``value``, which ``reader`` reads. Values that others read stay as they are."""
    if not isinstance(value, FxNode) or len(value.users) != 1 or not _is_like(value, reader):
        return
    yield _Summand(value, None, reader)
    if value.target is ADD:
        for first, second in _orders(value):
            if _is_gradient(first) and _is_like(second, value):
                yield _Summand(first, second, reader)
            else:
                yield from _summands(value, first)


def _orders(total: FxNode) -> Iterator[tuple[FxNode, FxNode]]:
    """Yield the two summands of ``total`` in both orders."""
    operands = [arg for arg in total.args if isinstance(arg, FxNode)]
    if len(operands) == 2 and not total.kwargs and operands[0] is not operands[1]:
        yield operands[0], operands[1]
        yield operands[1], operands[0]


def _is_gradient(node: FxNode) -> bool:
    """Whether the node is the gradient of an embedding, not scaled by frequency, that one node reads."""
    if node.target is not GRADIENT or len(node.users) != 1 or node.args[4] is not False:
        return False
    values = [arg.meta.get("val") if isinstance(arg, FxNode) else None for arg in node.args[:2]]
    return all(isinstance(v, torch.Tensor) and all(isinstance(n, int) for n in v.shape) for v in values)


def _fit(early: FxNode, late: FxNode) -> bool:
    """Whether the gradients are of one embedding, or of two that are alike, from operands of equal dtypes."""
    dtypes = [[arg.meta["val"].dtype for arg in node.args[:2]] for node in (early, late)]
    return early.args[2:] == late.args[2:] and dtypes[0] == dtypes[1]


def _is_like(node: FxNode, other: FxNode) -> bool:
    """Whether both values have one shape and dtype, so that a sum of them converts and broadcasts nothing."""
    a, b = (n.meta.get("val") for n in (node, other))
    return (
        isinstance(a, torch.Tensor)
        and isinstance(b, torch.Tensor)
        and a.dtype is b.dtype
        and a.shape == b.shape
    )


def _replace(graph: Graph, total: FxNode, late: FxNode, early: _Summand) -> None:
    """Let ``total`` add the joined gradient in place of ``late``, and drop ``early`` from its sum."""
    both = (early.value, late)
    with graph.inserting_before(total):
        rows = [_flat(graph, node.args[0], 1) for node in both]
        indices = [_flat(graph, node.args[1], 0) for node in both]
        args = (_made(graph, CAT, rows), _made(graph, CAT, indices), *late.args[2:])
        gradient = graph.call_function(GRADIENT, args)
    gradient.meta = dict(late.meta)
    if early.rest is None:
        total.replace_all_uses_with(gradient)
        graph.erase_node(total)
    else:
        (dropped,) = early.value.users
        total.replace_input_with(late, gradient)
        early.reader.replace_input_with(dropped, early.rest)
        graph.erase_node(dropped)
    for node in both:
        graph.erase_node(node)


def _flat(graph: Graph, tensor: Any, kept: int) -> FxNode:
    """Return a view of ``tensor`` with all dimensions but the last ``kept`` as one."""
    value = tensor.meta["val"]
    shape = [-1, *value.shape[value.dim() - kept :]]
    view = graph.call_function(VIEW, (tensor, shape))
    view.meta = {**tensor.meta, "val": value.reshape(shape)}
    return view


def _made(graph: Graph, target: Any, nodes: list[FxNode]) -> FxNode:
    """Return the concatenation of ``nodes``."""
    joined = graph.call_function(target, (nodes,))
    joined.meta = {**nodes[0].meta, "val": torch.cat([node.meta["val"] for node in nodes])}
    return joined
