"""A graph as JSON without a file: only operators and arguments, for a reader that only runs the graph."""

from __future__ import annotations

from typing import Any

from torch.fx import Graph, GraphModule, Node

from fxstack_interchange.format.encoding.constants import ConstantWriter
from fxstack_interchange.format.encoding.document import decode_graph, encode_graph, encode_symbols
from fxstack_interchange.format.errors import LoadError, SaveError
from fxstack_interchange.format.symbols import declare
from fxstack_interchange.modules import make_graph_module


def graph_to_json(module: GraphModule) -> dict[str, Any]:
    """Return ``module`` and its subgraphs as JSON, without node metadata.

    Raises:
        SaveError: ``module`` holds tensors, symbolic sizes or values that the format cannot express.
    """
    bare = _without_metadata(module)
    if encode_symbols(bare):
        raise SaveError("a graph with symbolic sizes of its own")
    constants = ConstantWriter()
    content = encode_graph(bare, constants)
    if constants.records:
        raise SaveError("a graph with tensors of its own")
    return content


def graph_from_json(content: Any) -> GraphModule:
    """Return the graph that ``graph_to_json`` encoded.

    Raises:
        LoadError: the content is malformed.
    """
    try:
        return decode_graph(content, declare([]), {}, 0)
    except (KeyError, TypeError, ValueError, AttributeError) as error:
        raise LoadError(f"malformed graph: {error}") from error


def _without_metadata(module: GraphModule) -> GraphModule:
    """Return a copy of a graph and of the graphs that it calls, without the metadata of nodes."""
    graph = Graph()
    copies: dict[Node, Node] = {}
    root: dict[str, Any] = {}
    for node in module.graph.nodes:
        copies[node] = graph.node_copy(node, copies.__getitem__)
        copies[node].meta = {}
        if node.op == "get_attr":
            value: Any = module
            for part in str(node.target).split("."):
                value = getattr(value, part)
            root[str(node.target)] = _without_metadata(value) if isinstance(value, GraphModule) else value
    return make_graph_module(root, graph)
