"""Sums of matrix products that begin on one side of a region's boundary and end on the other side.

A compiler may compute ``a @ b + c @ d`` as one product that is added to the other, which rounds in another order than
two products and a sum. A boundary between both products would prevent it, and the result would differ in its last bits
from that of a graph without regions. So an automatic region must not cut such a sum.
"""

from __future__ import annotations

from typing import Any

import torch
from torch.fx import Graph, Node

aten = torch.ops.aten
_TRANSPOSES = frozenset({aten.t.default, aten.transpose.int, aten.permute.default})
_ADD = aten.add.Tensor


def is_sum_of_products(value: object) -> bool:
    """Whether ``value`` is the node of a matrix product, of a sum of such, or of a transpose of one."""
    node = _untransposed(value)
    if node is None:
        return False
    if node.target is aten.mm.default:
        return True
    return node.target is _ADD and all(map(is_sum_of_products, node.args))


def _untransposed(value: object) -> Node | None:
    """Return the node of which ``value`` is a transpose, or ``value`` itself; None for a constant."""
    while isinstance(value, Node) and value.target in _TRANSPOSES:
        value = value.args[0]
    return value if isinstance(value, Node) else None


def added_inputs(graph: Graph) -> frozenset[int]:
    """Return the positions of the inputs of ``graph`` that are terms of a sum, perhaps transposed."""
    added = [
        _untransposed(argument)
        for node in graph.find_nodes(op="call_function", target=_ADD)
        for argument in node.args
    ]
    return frozenset(
        position for position, node in enumerate(graph.find_nodes(op="placeholder")) if node in added
    )


def products(graph: Graph) -> frozenset[int]:
    """Return the positions of the outputs of ``graph`` that are products, or sums of products."""
    outputs: Any = graph.output_node().args[0]
    return frozenset(position for position, node in enumerate(outputs) if is_sum_of_products(node))


def added_products(graph: Graph) -> frozenset[int]:
    """Return the positions of the outputs of ``graph`` that are sums of products, perhaps transposed."""
    outputs: Any = graph.output_node().args[0]
    return frozenset(
        position
        for position in products(graph)
        if (node := _untransposed(outputs[position])) is not None and node.target is _ADD
    )
