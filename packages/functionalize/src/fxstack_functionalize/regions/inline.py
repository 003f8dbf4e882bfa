"""Put the nodes of shared regions in the places of their calls, for readers that need every operator."""

from __future__ import annotations

from collections.abc import Sequence
from operator import attrgetter, getitem
from typing import Any

import torch
from torch.fx import Graph, GraphModule, Node
from torch.fx.node import map_arg

from fxstack_functionalize.regions.outline import INVOKE
from fxstack_interchange.modules import make_graph_module


def inline_regions(module: GraphModule) -> GraphModule:
    """Return ``module`` without calls of regions, or ``module`` itself if it has none.

    The functions of other operators in the graph (branches, bodies of loops) call no regions either.
    """
    if not calls_regions(module):
        return module
    root = torch.nn.Module()
    root.__dict__.update(module.__dict__)
    root._modules = dict(module._modules)
    graph = Graph()
    _copy(graph, root, module, None)
    return make_graph_module(root, graph, type(module).__name__)


def calls_regions(module: GraphModule) -> bool:
    """Whether the graph, or a graph that is a submodule, calls a region."""
    graphs = (inner.graph for inner in module.modules() if isinstance(inner, GraphModule))
    return any(graph.find_nodes(op="call_function", target=INVOKE) for graph in graphs)


def _copy(graph: Graph, root: torch.nn.Module, module: GraphModule, inputs: Sequence[Any] | None) -> Any:
    """Copy the nodes of ``module`` to ``graph``; ``inputs`` take the places of the placeholders of a body.

    Return the results of a body.
    """
    copies: dict[Node, Any] = {}
    given = iter(inputs or ())
    for node in module.graph.nodes:
        if node.op == "placeholder" and inputs is not None:
            copies[node] = next(given)
        elif node.op == "output" and inputs is not None:
            return map_arg(node.args[0], copies.__getitem__)
        elif node.op == "get_attr":
            copies[node] = _copy_attribute(graph, root, module, node)
        elif node.target is INVOKE:
            body = attrgetter(str(node.args[0].target))(module)
            operands = [map_arg(operand, copies.__getitem__) for operand in node.args[2:]]
            copies[node] = _copy(graph, root, body, operands)
        elif node.target is getitem and not isinstance(copies[node.args[0]], Node):
            copies[node] = copies[node.args[0]][node.args[1]]
        else:
            copies[node] = graph.node_copy(node, copies.__getitem__)
    return None


def _copy_attribute(graph: Graph, root: torch.nn.Module, module: GraphModule, node: Node) -> Node | None:
    """Copy a node that loads an attribute, and give ``root`` the attribute of a body. A body itself is not loaded."""
    if node.users and all(user.target is INVOKE for user in node.users):
        return None
    value, name = attrgetter(str(node.target))(module), str(node.target)
    used = inline_regions(value) if isinstance(value, GraphModule) else value
    if used is not value:
        name = name.replace(".", "_")
    number, first = 0, name
    while "." not in name and getattr(root, name, value) is not value:
        number += 1
        name = f"{first}_{number}"
    if "." not in name:
        setattr(root, name, used)
    copy = graph.get_attr(name)
    copy.meta = dict(node.meta)
    return copy
