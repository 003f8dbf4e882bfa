"""A stage graph as one JSON document, written and read node by node."""

from __future__ import annotations

import keyword
from collections.abc import Iterator
from dataclasses import asdict
from typing import Any

import torch
from torch.fx import Graph, GraphModule, Node

from fxstack_interchange.format.encoding.arguments import Reading, decode, encode
from fxstack_interchange.format.encoding.constants import ConstantWriter
from fxstack_interchange.format.encoding.nodemeta import decode_meta, encode_meta
from fxstack_interchange.format.encoding.targets import check_attribute, is_tensor_method, name_of, resolve
from fxstack_interchange.format.errors import LoadError, SaveError
from fxstack_interchange.format.metadata import user_line
from fxstack_interchange.format.signature import (
    GraphSignature,
    InputKind,
    InputSpec,
    OutputKind,
    OutputSpec,
    Stage,
    StageGraph,
    SymbolSpec,
)
from fxstack_interchange.format.symbols import SymbolTable, declare, describe_symbol, symbols_in
from fxstack_interchange.modules import make_graph_module

FORMAT = "fxstack-interchange"
VERSION = (1, 1)
"""Version 1.1 adds ``signature.unsaved``.

A graph without ``unsaved`` is written as version 1.0, which every reader understands.
"""
MAX_GRAPH_DEPTH = 16


def to_document(graph: StageGraph, constants: ConstantWriter) -> dict[str, Any]:
    """Return the JSON document of ``graph``. Its tensors go to ``constants``.

    Raises:
        SaveError: the format cannot express a part of the graph. The text names the node.
    """
    body = encode_graph(graph.graph_module, constants)
    signature = asdict(graph.signature)
    keys = ["inputs", "outputs", "symbols", *(["unsaved"] if graph.signature.unsaved else [])]
    return {
        "format": FORMAT,
        "version": "1.1" if graph.signature.unsaved else "1.0",
        "stage": graph.signature.stage.value,
        "signature": {key: list(signature[key]) for key in keys},
        "symbols": encode_symbols(graph.graph_module),
        "graph": body,
        "constants": constants.records,
    }


def _modules(module: GraphModule) -> Iterator[GraphModule]:
    """Yield a graph module and the graph modules inside of it."""
    for child in module.modules():
        if isinstance(child, GraphModule):
            yield child


def encode_symbols(module: GraphModule) -> list[dict[str, Any]]:
    """Return one description per symbol of a graph and its subgraphs, sorted by the symbol's name."""
    descriptions: dict[str, dict[str, Any]] = {}
    for part in _modules(module):
        for node in part.graph.nodes:
            values = [node.meta.get("val"), node.args, node.kwargs]
            for symbol, shape_env in symbols_in(values):
                if str(symbol) not in descriptions:
                    descriptions[str(symbol)] = describe_symbol(symbol, shape_env)
    # Sorted, so that the same graph gives the same bytes.
    return [descriptions[name] for name in sorted(descriptions)]


def encode_graph(module: GraphModule, constants: ConstantWriter) -> dict[str, Any]:
    """Return nodes and attributes as JSON. Tensors go to ``constants``.

    Raises:
        SaveError: the format cannot express a part of the graph. The text names the node.
    """
    nodes, attributes = [], {}
    for node in module.graph.nodes:
        try:
            nodes.append(_encode_node(node))
            if node.op == "get_attr":
                attributes[str(node.target)] = _encode_attribute(module, str(node.target), constants)
        except (SaveError, LoadError) as error:
            line = user_line(node)
            where = f"\n    from {line}" if line else ""
            raise SaveError(f"node {node.name!r}: {error}{where}") from error
    return {"nodes": nodes, "attributes": attributes}


def _encode_node(node: Node) -> dict[str, Any]:
    """Return the record of a node in the document. Raise SaveError for a call that no file may hold."""
    if node.op == "call_module":
        raise SaveError(
            "calls a module; the format holds functional graphs, lift the module's state to inputs"
        )
    target = name_of(node.target) if node.op == "call_function" else str(node.target)
    if node.op == "call_method" and not is_tensor_method(target):
        raise SaveError(f"calls the method {target!r}, which is not in the list of allowed methods")
    if node.target is getattr:
        check_attribute(node.args, node.kwargs)
    return {
        "name": node.name,
        "op": node.op,
        "target": target,
        "args": [encode(arg) for arg in node.args],
        "kwargs": [[key, encode(value)] for key, value in node.kwargs.items()],
        "meta": encode_meta(node.meta),
    }


def _encode_attribute(module: GraphModule, path: str, constants: ConstantWriter) -> dict[str, Any]:
    """Return the record of the attribute at ``path``: a graph, a constant or a plain value."""
    value: Any = module
    for part in path.split("."):
        if not hasattr(value, part):
            raise SaveError(f"refers to attribute {path!r}, which the graph module does not have")
        value = getattr(value, part)
    if isinstance(value, GraphModule):
        return {"graph": encode_graph(value, constants)}
    if isinstance(value, torch.Tensor):
        return {"constant": constants.add(value)}
    return {"value": encode(value)}


def from_document(document: dict[str, Any], constants: dict[str, torch.Tensor]) -> StageGraph:
    """Rebuild the stage graph of a document that has passed the schema check.

    Raises:
        LoadError: the document is malformed. The text names the defect and its place.
    """
    table = declare(document["symbols"])
    module = decode_graph(document["graph"], table, constants, 0)
    return StageGraph(module, _decode_signature(document))


def _decode_signature(document: dict[str, Any]) -> GraphSignature:
    """Return the signature of the document. Raise LoadError if a field is missing or has an unknown value."""
    record = document["signature"]
    try:
        return GraphSignature(
            stage=Stage(document["stage"]),
            inputs=tuple(InputSpec(**{**s, "kind": InputKind(s["kind"])}) for s in record["inputs"]),
            outputs=tuple(OutputSpec(**{**s, "kind": OutputKind(s["kind"])}) for s in record["outputs"]),
            symbols=tuple(SymbolSpec(**spec) for spec in record["symbols"]),
            unsaved=tuple(record.get("unsaved", ())),
        )
    except (TypeError, ValueError) as error:
        raise LoadError(f"malformed signature: {error}") from error


def decode_graph(
    record: dict[str, Any], table: SymbolTable, constants: dict[str, torch.Tensor], depth: int
) -> GraphModule:
    """Rebuild a graph that is nested ``depth`` levels inside the outermost graph.

    Raises:
        LoadError: the record is malformed. The text names the defect and the node.
    """
    if depth > MAX_GRAPH_DEPTH:
        raise LoadError(f"subgraphs are nested deeper than {MAX_GRAPH_DEPTH}")
    root = {
        _path(path): _decode_attribute(path, value, table, constants, depth)
        for path, value in record["attributes"].items()
    }
    graph = Graph()
    nodes: dict[str, Node] = {}
    for item in record["nodes"]:
        try:
            _decode_node(item, graph, nodes, root, table)
        except LoadError as error:
            raise LoadError(f"node {item['name']!r:.100}: {error}") from error
    last = record["nodes"][-1] if record["nodes"] else {"op": None}
    if last["op"] != "output":
        raise LoadError("a graph must end in its output node")
    inputs = [item["target"] for item in record["nodes"] if item["op"] == "placeholder"]
    if len(set(inputs)) < len(inputs):
        raise LoadError("two inputs have the same target")
    return make_graph_module(root, graph)


def _decode_attribute(
    path: str, record: dict[str, Any], table: SymbolTable, constants: dict[str, torch.Tensor], depth: int
) -> Any:
    """Return the value of the attribute at ``path``. ``depth``: the number of graphs around it."""
    if "graph" in record:
        return decode_graph(record["graph"], table, constants, depth + 1)
    if "constant" in record:
        if record["constant"] not in constants:
            raise LoadError(f"attribute {path!r} refers to constant {record['constant']!r}, which is missing")
        return constants[record["constant"]]
    return decode(record.get("value"), Reading({}, table))


def _identifier(text: object, what: str) -> str:
    """Return ``text`` if it is an identifier.

    Names become part of generated Python code, so other text is an error.
    """
    if not isinstance(text, str) or not text.isidentifier() or keyword.iskeyword(text):
        raise LoadError(f"{what} {text!r:.100} is not an identifier")
    return text


def _path(path: str) -> str:
    """Return the path of an attribute. Raise LoadError if a part of it would hide a member of GraphModule."""
    for part in path.split("."):
        _identifier(part, "attribute name")
        if part.startswith("__") or hasattr(GraphModule, part):
            raise LoadError(f"attribute name {path!r} would replace a part of GraphModule")
    return path


def _decode_node(
    record: dict[str, Any], graph: Graph, nodes: dict[str, Node], root: dict[str, Any], table: SymbolTable
) -> None:
    """Add the node that ``record`` describes to ``graph`` and to ``nodes``. Its arguments are in ``nodes`` already."""
    name = _identifier(record["name"], "node name")
    if name in nodes:
        raise LoadError("the name is used twice")
    if nodes and next(reversed(nodes.values())).op == "output":
        raise LoadError("follows the output node")
    op, target = record["op"], record["target"]
    reading = Reading(nodes, table)
    args = tuple(decode(arg, reading) for arg in record["args"])
    kwargs = {_identifier(k, "keyword"): decode(value, reading) for k, value in record["kwargs"]}
    decoded = _decode_target(op, target, root)
    if decoded is getattr:
        check_attribute(args, kwargs)
    if op == "output" and (len(args) != 1 or kwargs):
        raise LoadError(f"the output node has one argument, found {len(args) + len(kwargs)}")
    if op == "placeholder" and (len(args) > 1 or kwargs):
        raise LoadError("an input has no argument but a default value")
    node = graph.create_node(op, decoded, args, kwargs, name)
    # Other records refer to the name in the file, so a changed name would break them.
    if node.name != name:
        raise LoadError(f"torch.fx does not accept this name and would change it to {node.name!r}")
    node.meta = decode_meta(record["meta"], table)
    nodes[name] = node


def _decode_target(op: str, target: str, root: dict[str, Any]) -> Any:
    """Return the target of a node: a function for ``call_function``, else a name.

    Raise LoadError for an unknown target.
    """
    if op == "call_function":
        return resolve(target)
    if op == "call_method" and not is_tensor_method(target):
        raise LoadError(f"unknown tensor method {target!r:.100}")
    if op == "get_attr" and target not in root:
        raise LoadError(f"refers to attribute {target!r:.100}, which the file does not hold")
    if op == "get_attr":
        return _path(target)
    return _identifier(target, "target")
