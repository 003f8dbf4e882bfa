"""Rewrite a sum of matrix products so that each product is added into the same memory.

Such a sum is, for example, the gradient of a weight that is used many times.
``add(add(a @ b, c @ d), e @ f)`` becomes ``addmm(addmm(a @ b, c, d), e, f)``. BLAS adds a product to its
output, so the products need no memory of their own and no kernel has to read all of them (``schedule.memory``
gives the partial sums one buffer). The rewrite requires that every summand is a float32 or float64 CPU
product that no other node reads. The sum is rounded as often as before, in another order. All products may be
transposed, or none: a sum of transposed products is the transposed sum.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import torch
from torch.fx import Graph, GraphModule
from torch.fx import Node as FxNode

from fxstack_inductor.lower.registry import find_overload
from fxstack_interchange.modules import make_graph_module

# Limits: BLAS rounds as often as eager does, but in another order.

ADD, MM, ADDMM, T, TRANSPOSE, PERMUTE = (
    find_overload(f"{name}")
    for name in ("add.Tensor", "mm.default", "addmm.default", "t.default", "transpose.int", "permute.default")
)


@dataclass(frozen=True, slots=True)
class Product:
    """A summand: the product ``node`` behind ``transposes``, which swap the dimensions if ``turned``."""

    node: FxNode
    turned: bool
    transposes: tuple[FxNode, ...]


@dataclass(frozen=True, slots=True)
class Sum:
    """A sum: ``base`` (the node of another sum, or a product) plus ``product``."""

    base: FxNode | Product
    product: Product


def accumulate_products(graph_module: GraphModule) -> GraphModule:
    """Return a copy with sums of products rewritten, or ``graph_module`` itself if there are none."""
    sums: dict[FxNode, Sum] = {}
    for node in graph_module.graph.nodes:
        found = _sum(node, sums)
        if found is not None:
            sums[node] = found
    return _rewritten(graph_module, sums) if sums else graph_module


def _sum(node: FxNode, sums: Mapping[FxNode, Sum]) -> Sum | None:
    """Return ``node`` as a sum of products, or None if ``node`` is no such sum."""
    if node.target is not ADD or len(node.args) != 2 or node.kwargs:
        return None
    first, second = node.args
    if first is second or not _owned(first) or not _owned(second):
        return None
    assert isinstance(first, FxNode)
    assert isinstance(second, FxNode)
    if not _alike(node, first, second):
        return None
    for base, added in ((first, second), (second, first)):
        product = _product(added)
        if product is None:
            continue
        before = _product(base)
        turned = sums[base].product.turned if base in sums else None
        if before is not None and before.turned == product.turned:
            return Sum(before, product)
        if turned == product.turned:
            return Sum(base, product)
    return None


def _product(node: FxNode) -> Product | None:
    """Return the product behind the transposes of ``node``, or None; no other node may read any of them."""
    turned = False
    transposes: list[FxNode] = []
    while _owned(node):
        if node.target is MM:
            return Product(node, turned, tuple(transposes))
        swaps = _swaps(node)
        if swaps is None:
            return None
        turned ^= swaps
        transposes.append(node)
        node = node.args[0]
    return None


def _swaps(node: FxNode) -> bool | None:
    """Whether ``node`` swaps the dimensions of a matrix; None if ``node`` is no transpose."""
    if node.target is T:
        return True
    if node.target is TRANSPOSE:
        result: bool | None = (node.args[1] - node.args[2]) % 2 == 1
        return result
    if node.target is PERMUTE:
        return [d % 2 for d in node.args[1]] == [1, 0]
    return None


def _owned(value: object) -> bool:
    """Whether ``value`` is a node with exactly one user."""
    return isinstance(value, FxNode) and len(value.users) == 1


def _alike(*nodes: FxNode) -> bool:
    values = [node.meta.get("val") for node in nodes]
    return all(
        isinstance(v, torch.Tensor)
        and v.dtype in (torch.float32, torch.float64)
        and v.device.type == "cpu"
        and v.dim() == 2
        and v.shape == values[0].shape
        and v.stride() == values[0].stride()
        for v in values
    )


def _rewritten(graph_module: GraphModule, sums: Mapping[FxNode, Sum]) -> GraphModule:
    graph = Graph()
    copies: dict[FxNode, FxNode] = {}
    """New nodes by old nodes. An inner sum of transposed products maps to the untransposed sum."""
    bases = {found.base for found in sums.values()}
    products = [found.product for found in sums.values()]
    dropped = {node for product in products for node in (product.node, *product.transposes)}
    for base in bases:
        if isinstance(base, Product):
            dropped.update(base.transposes)
    for node in graph_module.graph.nodes:
        if node in sums:
            found = sums[node]
            turned, final = found.product.turned, node not in bases
            base = found.base.node if isinstance(found.base, Product) else found.base
            factors = (copies[factor] for factor in found.product.node.args)
            name = f"{node.name}_turned" if turned and final else node.name
            made = graph.create_node("call_function", ADDMM, (copies[base], *factors), {}, name)
            made.meta = {**node.meta, "val": _value(node, turned=turned)}
            copies[node] = made
            if turned and final:
                copies[node] = graph.create_node("call_function", T, (made,), {}, node.name)
                copies[node].meta = dict(node.meta)
        elif node not in dropped:
            copies[node] = graph.node_copy(node, copies.__getitem__)
    return make_graph_module(graph_module, graph)


def _value(node: FxNode, *, turned: bool) -> torch.Tensor:
    value: torch.Tensor = node.meta["val"]
    return value.t() if turned else value
