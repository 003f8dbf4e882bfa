"""Copy nodes from one graph into another, fast.

A partition copies each node of a joint graph, which takes most of its time. ``Graph.node_copy`` searches the
arguments of each node for raw symbols, to warn of them, and updates its tables for every attribute that is
set. Arguments of copied nodes were checked before, and change nothing in these tables.
"""

from __future__ import annotations

from collections.abc import Mapping

from torch.fx import Graph, Node
from torch.fx.node import map_arg

_set = object.__setattr__
"""Sets an attribute directly: ``Node.__setattr__`` would update the tables of the node's graph."""


def copy_node(graph: Graph, node: Node, env: Mapping[Node, Node]) -> Node:
    """Add a copy of ``node`` to the end of ``graph``, with arguments replaced by ``env``."""
    made = graph.create_node(node.op, node.target, None, None, node.name, node.type)
    find = env.__getitem__
    _set(made, "args", map_arg(node.args, find))
    if node.kwargs:
        _set(made, "kwargs", map_arg(node.kwargs, find))
    made.meta.update(node.meta)
    return made
