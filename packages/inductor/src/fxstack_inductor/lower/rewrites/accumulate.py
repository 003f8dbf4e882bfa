"""Rewrite a sum of matrix products so that each product is added into the same memory.

Such a sum is, for example, the gradient of a weight that is used many times. ``add(add(a @ b, c @ d), e @
f)`` becomes ``addmm(addmm(a @ b, c, d), e, f)``. BLAS adds a product to its output, so the products need no
memory of their own and no kernel has to read all of them (``schedule.memory`` gives the partial sums one
buffer). The rewrite requires that every summand is a float32 or float64 CPU product that no other node reads.
The sum is rounded as often as before, in another order. Either all products are transposed, or none is: a sum
of transposed products is the transposed sum.
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
    """A summand of a sum: the matrix product ``node``, seen through ``transposes``.

    ``turned``: whether ``transposes`` transpose the product an odd number of times.
    """

    node: FxNode
    turned: bool
    transposes: tuple[FxNode, ...]


@dataclass(frozen=True, slots=True)
class Sum:
    """A sum that becomes ``addmm(base, product)``; ``base`` is a product or the node of another sum."""

    base: FxNode | Product
    product: Product


def accumulate_products(graph_module: GraphModule) -> GraphModule:
    """Return a copy with sums of products rewritten, or ``graph_module`` itself if there are none."""
    sums: dict[FxNode, Sum] = {}
    for node in graph_module.graph.nodes:
        summation = _sum(node, sums)
        if summation is not None:
            sums[node] = summation
    return _rewritten(graph_module, sums) if sums else graph_module


def _sum(node: FxNode, sums: Mapping[FxNode, Sum]) -> Sum | None:
    """Return ``node`` as a sum of products; None for any other node. ``sums`` has the sums found before."""
    if node.target is not ADD or len(node.args) != 2 or node.kwargs:
        return None
    first, second = node.args
    if first is second or not _has_one_user(first) or not _has_one_user(second):
        return None
    assert isinstance(first, FxNode)
    assert isinstance(second, FxNode)
    if not _have_equal_layouts(node, first, second):
        return None
    for base, added in ((first, second), (second, first)):
        product = _product(added)
        if product is None:
            continue
        before = _product(base)
        transposed = sums[base].product.turned if base in sums else None
        if before is not None and before.turned == product.turned:
            return Sum(before, product)
        if transposed == product.turned:
            return Sum(base, product)
    return None


def _product(node: FxNode) -> Product | None:
    """Return the product behind the transposes of ``node``.

    None if there is no product, or if another node reads the product or one of the transposes.
    """
    transposed = False
    transposes: list[FxNode] = []
    while _has_one_user(node):
        if node.target is MM:
            return Product(node, transposed, tuple(transposes))
        swaps = _swaps(node)
        if swaps is None:
            return None
        transposed ^= swaps
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


def _has_one_user(value: object) -> bool:
    """Whether ``value`` is a node with exactly one user."""
    return isinstance(value, FxNode) and len(value.users) == 1


def _have_equal_layouts(*nodes: FxNode) -> bool:
    """Whether all values are float32 or float64 CPU matrices of one shape and strides: ``addmm`` needs no copies then."""
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
    """Return a copy of the graph in which each of ``sums`` is an ``addmm``."""
    graph = Graph()
    copies: dict[FxNode, FxNode] = {}
    """Old node -> new node. An inner sum of transposed products maps to the untransposed sum."""
    bases = {summation.base for summation in sums.values()}
    products = [summation.product for summation in sums.values()]
    dropped = {node for product in products for node in (product.node, *product.transposes)}
    for base in bases:
        if isinstance(base, Product):
            dropped.update(base.transposes)
    for node in graph_module.graph.nodes:
        if node in sums:
            summation = sums[node]
            transposed, final = summation.product.turned, node not in bases
            base = summation.base.node if isinstance(summation.base, Product) else summation.base
            factors = (copies[factor] for factor in summation.product.node.args)
            name = f"{node.name}_transposed" if transposed and final else node.name
            addmm = graph.create_node("call_function", ADDMM, (copies[base], *factors), {}, name)
            addmm.meta = {**node.meta, "val": _value(node, transposed=transposed)}
            copies[node] = addmm
            if transposed and final:
                copies[node] = graph.create_node("call_function", T, (addmm,), {}, node.name)
                copies[node].meta = dict(node.meta)
        elif node not in dropped:
            copies[node] = graph.node_copy(node, copies.__getitem__)
    return make_graph_module(graph_module, graph, deferred=True)


def _value(node: FxNode, *, transposed: bool) -> torch.Tensor:
    """Return the fake value of ``node``, transposed if wanted."""
    value: torch.Tensor = node.meta["val"]
    return value.t() if transposed else value
