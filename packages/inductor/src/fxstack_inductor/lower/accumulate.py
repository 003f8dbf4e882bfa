"""Sums of matrix products, as the gradient of a weight that is used many times: each product is added into the same memory.

``add(add(a @ b, c @ d), e @ f)`` becomes ``addmm(addmm(a @ b, c, d), e, f)``. BLAS adds a product to what is
there, so the products need no memory of their own, and the sum no kernel that reads them all (``schedule.memory`` gives
the sums one place). It is done where every summand is a product that nothing else reads, in single and double precision;
the sum is rounded as often as before, in another order. Products may be transposed, all or none: autograd transposes a
weight's gradient twice, and a sum of transposed products is the transposed sum.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import torch
from torch.fx import Graph
from torch.fx import Node as FxNode

from fxstack_inductor.lower.registry import find_overload
from fxstack_interchange.modules import make_graph_module

if TYPE_CHECKING:
    from collections.abc import Mapping

    from torch.fx import GraphModule

# Limits: BLAS rounds as often as eager does, but in another order.

ADD, MM, ADDMM, T, TRANSPOSE, PERMUTE = (
    find_overload(f"{name}")
    for name in ("add.Tensor", "mm.default", "addmm.default", "t.default", "transpose.int", "permute.default")
)


@dataclass(frozen=True, slots=True)
class Product:
    """A summand: the product ``node``, behind transposes that come to one if ``turned`` and to none if not."""

    node: FxNode
    turned: bool
    transposes: tuple[FxNode, ...]


@dataclass(frozen=True, slots=True)
class Sum:
    """What a sum is made of: another sum (by its node) or a product, and the product that is added."""

    base: FxNode | Product
    product: Product


def accumulate_products(graph_module: GraphModule) -> GraphModule:
    """The same program with such sums replaced, or ``graph_module`` itself if it has none; it is not changed."""
    sums: dict[FxNode, Sum] = {}
    for node in graph_module.graph.nodes:
        found = _sum(node, sums)
        if found is not None:
            sums[node] = found
    return _rewritten(graph_module, sums) if sums else graph_module


def _sum(node: FxNode, sums: Mapping[FxNode, Sum]) -> Sum | None:
    """``node`` as a sum of products; None if it is none."""
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
    """What is behind the transposes of ``node``, if it is a product and nothing else reads it."""
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
    """Whether ``node`` swaps the dimensions of a matrix; None if it is no transpose."""
    if node.target is T:
        return True
    if node.target is TRANSPOSE:
        result: bool | None = (node.args[1] - node.args[2]) % 2 == 1
        return result
    if node.target is PERMUTE:
        return [d % 2 for d in node.args[1]] == [1, 0]
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
        and v.dim() == 2
        and v.shape == values[0].shape
        and v.stride() == values[0].stride()
        for v in values
    )


def _rewritten(graph_module: GraphModule, sums: Mapping[FxNode, Sum]) -> GraphModule:
    graph = Graph()
    copies: dict[FxNode, FxNode] = {}
    """By nodes of the given graph; of a sum of turned products that another one adds to, the sum before it is turned."""
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
