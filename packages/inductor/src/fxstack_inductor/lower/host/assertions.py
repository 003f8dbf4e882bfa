"""Numbers that a graph's assertions are about, as the program computes them.

Once ``torch._check(n == x.size(0))`` has been met, torch writes the size wherever the program says ``n``. In the assertion
itself that would compare the size with the size, so the host computes there what the graph says.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import torch

if TYPE_CHECKING:
    from torch.fx import Graph
    from torch.fx import Node as FxNode

ASSERTION = torch.ops.aten._assert_scalar.default


def asserted_numbers(graph: Graph) -> frozenset[FxNode]:
    """The nodes of single numbers that assertions are computed from."""
    found: set[FxNode] = set()
    waiting = [
        arg for node in graph.find_nodes(op="call_function", target=ASSERTION) for arg in node.all_input_nodes
    ]
    while waiting:
        node = waiting.pop()
        if node not in found and not isinstance(node.meta.get("val"), torch.Tensor):
            found.add(node)
            waiting += node.all_input_nodes
    return frozenset(found)


def is_simplified(value: Any) -> bool:
    """Whether an assumption has made another expression of a symbolic number."""
    return bool(value.node._expr != value.node.expr)
