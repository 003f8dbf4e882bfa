"""Nodes copied from one graph into another, many at a time.

A partition makes each node of a joint graph again, which takes most of its time. ``Graph.node_copy`` looks through the
arguments of each for raw symbols, to warn of them, and keeps its tables with every attribute that is set; the arguments
of nodes that are copied have been there before, and change nothing in these tables.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from torch.fx.node import map_arg

if TYPE_CHECKING:
    from collections.abc import Mapping

    from torch.fx import Graph, Node

_set = object.__setattr__
"""Assigns the property; ``Node.__setattr__`` takes the node out of its graph's tables and puts it back."""


def copy_node(graph: Graph, node: Node, env: Mapping[Node, Node]) -> Node:
    """Add a copy of ``node`` to the end of ``graph``, with arguments as ``env`` has them."""
    made = graph.create_node(node.op, node.target, None, None, node.name, node.type)
    find = env.__getitem__
    _set(made, "args", map_arg(node.args, find))
    if node.kwargs:
        _set(made, "kwargs", map_arg(node.kwargs, find))
    made.meta.update(node.meta)
    return made
