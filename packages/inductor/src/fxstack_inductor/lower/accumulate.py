"""Sums of matrix products, as the gradient of a weight that is used many times: each product is added into the same memory.

``add(add(a @ b, c @ d), e @ f)`` becomes ``addmm(addmm(a @ b, c, d), e, f)``. BLAS adds a product to what is
there, so the products need no memory of their own, and the sum no kernel that reads them all (``schedule.memory`` gives
the sums one place). It is done where every summand is a product that nothing else reads, in single and double precision;
the sum is rounded as often as before, in another order.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import torch
from torch.fx import Graph, GraphModule
from torch.fx import Node as FxNode

from fxstack_inductor.lower.registry import find_overload
from fxstack_interchange.modules import make_graph_module

if TYPE_CHECKING:
    from collections.abc import Mapping

ADD, MM, ADDMM = (find_overload(name) for name in ("add.Tensor", "mm.default", "addmm.default"))


def accumulate_products(graph_module: GraphModule) -> GraphModule:
    """The same program with such sums replaced, or ``graph_module`` itself if it has none; it is not changed."""
    sums: dict[FxNode, tuple[FxNode, FxNode]] = {}
    for node in graph_module.graph.nodes:
        found = _summands(node, sums)
        if found is not None:
            sums[node] = found
    return _rewritten(graph_module, sums) if sums else graph_module


def _summands(
    node: FxNode, sums: Mapping[FxNode, tuple[FxNode, FxNode]]
) -> tuple[FxNode, FxNode] | None:
    """What ``node`` adds to, and the product that it adds; None if it is no such sum."""
    if node.target is not ADD or len(node.args) != 2 or node.kwargs:
        return None
    first, second = node.args
    if first is second or not all(_owned(part) for part in (first, second)):
        return None
    for base, product in ((first, second), (second, first)):
        if (
            product.target is MM
            and (base.target is MM or base in sums)
            and _alike(node, base, product)
        ):
            return base, product
    return None


def _owned(value: object) -> bool:
    """Whether ``value`` is a node that only one other reads."""
    return isinstance(value, FxNode) and len(value.users) == 1


def _alike(*nodes: FxNode) -> bool:
    values = [node.meta.get("val") for node in nodes]
    return all(
        isinstance(v, torch.Tensor)
        and v.dtype in (torch.float32, torch.float64)
        and v.device.type == "cpu"
        and v.shape == values[0].shape
        and v.stride() == values[0].stride()
        for v in values
    )


def _rewritten(
    graph_module: GraphModule, sums: Mapping[FxNode, tuple[FxNode, FxNode]]
) -> GraphModule:
    graph = Graph()
    copies: dict[FxNode, FxNode] = {}
    merged = {product for _, product in sums.values()}
    for node in graph_module.graph.nodes:
        if node in sums:
            base, product = sums[node]
            arguments = (copies[base], *(copies[arg] for arg in product.args))
            copies[node] = graph.create_node("call_function", ADDMM, arguments, {}, node.name)
            copies[node].meta = dict(node.meta)
        elif node not in merged:
            copies[node] = graph.node_copy(node, copies.__getitem__)
    return make_graph_module(graph_module, graph)
