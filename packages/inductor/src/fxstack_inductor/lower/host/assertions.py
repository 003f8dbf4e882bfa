"""Find the numbers that a graph's assertions compare, so that the host computes them without simplification.

After ``torch._check(n == x.size(0))``, torch replaces ``n`` by the size everywhere. In the assertion itself
the replacement would compare the size with itself. So the host computes these numbers by the operators of the
graph.
"""

from __future__ import annotations

from typing import Any

import torch
from torch.fx import Graph
from torch.fx import Node as FxNode

ASSERTION = torch.ops.aten._assert_scalar.default


def asserted_numbers(graph: Graph) -> frozenset[FxNode]:
    """Return the nodes of numbers from which assertions are computed."""
    numbers: set[FxNode] = set()
    waiting = [
        arg for node in graph.find_nodes(op="call_function", target=ASSERTION) for arg in node.all_input_nodes
    ]
    while waiting:
        node = waiting.pop()
        if node not in numbers and not isinstance(node.meta.get("val"), torch.Tensor):
            numbers.add(node)
            waiting += node.all_input_nodes
    return frozenset(numbers)


def is_simplified(value: Any) -> bool:
    """Whether an assumption has changed the expression of a symbolic number."""
    return bool(value.node._expr != value.node.expr)
