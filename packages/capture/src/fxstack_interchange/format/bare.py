"""A graph as JSON without a file around it: its operators and arguments alone, for what only runs it."""

from __future__ import annotations

from typing import Any

from torch.fx import Graph, GraphModule, Node

from fxstack_interchange.errors import LoadError, SaveError
from fxstack_interchange.format.constants import ConstantWriter
from fxstack_interchange.format.document import decode_graph, encode_graph, encode_symbols
from fxstack_interchange.format.symbols import declare
from fxstack_interchange.modules import make_graph_module


def graph_to_json(module: GraphModule) -> dict[str, Any]:
    """Return ``module`` as JSON, without its metadata; graphs inside of it are parts of it.

    Raises:
        SaveError: it holds tensors or symbolic sizes, or what the format cannot express.
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
    """Return the graph of ``graph_to_json``.

    Raises:
        LoadError: the content is malformed.
    """
    try:
        return decode_graph(content, declare([]), {}, 0)
    except (KeyError, TypeError, ValueError, AttributeError) as error:
        raise LoadError(f"malformed graph: {error}") from error


def _without_metadata(module: GraphModule) -> GraphModule:
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
