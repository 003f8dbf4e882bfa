"""Replace equal segments of a captured graph by calls of shared regions."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from operator import getitem
from typing import Any

import torch
from torch.fx import Graph, GraphModule, Node

from fxstack_functionalize.regions.segments import Segment, equal_segments
from fxstack_interchange.modules import make_graph_module

INVOKE = torch.ops.higher_order.invoke_subgraph
_LOCATION = ("stack_trace", "nn_module_stack", "source_fn_stack")


@dataclass(slots=True)
class Group:
    """Equal segments of one captured graph, and the graph module that computes any of the segments."""

    name: str
    body: GraphModule
    segments: list[Segment]
    """The segments that are calls. The first trace may remove some."""


@dataclass(frozen=True, slots=True)
class Outlined:
    """A captured graph in which calls of regions replace equal segments. ``calls``: the segment of each call."""

    graph_module: GraphModule
    calls: dict[Node, tuple[Group, Segment]]


def find_groups(module: GraphModule) -> list[Group]:
    """Return the groups of equal segments of a captured graph, named as torch names regions."""
    taken = {str(node.target) for node in module.graph.find_nodes(op="get_attr")}
    found = equal_segments(module.graph)
    names = (f"subgraph_{number}" for number in range(len(found) + len(taken)))
    free = (name for name in names if name not in taken and not hasattr(module, name))
    return [Group(name, _body(segments[0]), segments) for name, segments in zip(free, found, strict=False)]


def outline(module: GraphModule, groups: Sequence[Group]) -> Outlined:
    """Return ``module`` with a call for each segment. The graph has the same inputs and reads the same tensors."""
    by_last = {segment.nodes[-1]: (group, segment) for group in groups for segment in group.segments}
    graph, calls = _with_calls(module.graph, by_last)
    # A GraphModule copies the attributes that its graph reads, by reference.
    root = {
        str(node.target): _attribute(module, str(node.target))
        for node in module.graph.find_nodes(op="get_attr")
    }
    root.update({group.name: group.body for group in groups if group.segments})
    for node in module.graph.find_nodes(op="call_module"):
        root[str(node.target)] = module.get_submodule(str(node.target))
    return Outlined(make_graph_module(root, graph), calls)


def _attribute(module: torch.nn.Module, path: str) -> Any:
    for name in path.split("."):
        module = getattr(module, name)
    return module


def _body(segment: Segment) -> GraphModule:
    """Return the nodes of a segment as a graph of their operands. It returns the results as a tuple."""
    graph = Graph()
    copies: dict[Node, Node] = {}
    for number, operand in enumerate(segment.operands):
        copies[operand] = graph.placeholder(f"arg{number}_1")
        copies[operand].meta = {"val": operand.meta["val"]}
    for node in segment.nodes:
        copies[node] = graph.node_copy(node, copies.__getitem__)
    output = graph.output(tuple(copies[node] for node in segment.results))
    output.meta["val"] = tuple(node.meta["val"] for node in segment.results)
    return make_graph_module(torch.nn.Module(), graph, "Region")


def _with_calls(
    old: Graph, by_last: dict[Node, tuple[Group, Segment]]
) -> tuple[Graph, dict[Node, tuple[Group, Segment]]]:
    """Return a copy of a graph in which calls of regions replace the segments, and the segment of each call."""
    graph = Graph()
    calls: dict[Node, tuple[Group, Segment]] = {}
    dropped = {node for _, segment in by_last.values() for node in segment.nodes}
    sources = [node for node in old.nodes if node.op in {"placeholder", "get_attr"}]
    copies: dict[Node, Node] = {node: graph.node_copy(node) for node in sources}
    for node in old.nodes:
        if node in copies:
            continue
        if node not in dropped:
            copies[node] = graph.node_copy(node, copies.__getitem__)
        elif node in by_last:
            group, segment = by_last[node]
            call = _add_call(graph, group.name, segment, [copies[operand] for operand in segment.operands])
            calls[call] = group, segment
            for number, result in enumerate(segment.results):
                copies[result] = graph.call_function(getitem, (call, number))
                copies[result].meta = {**_location(segment), "val": result.meta["val"]}
    return graph, calls


def _add_call(graph: Graph, name: str, segment: Segment, operands: Sequence[Node]) -> Node:
    """Add the call of a region."""
    call = graph.call_function(INVOKE, (graph.get_attr(name), name, *operands))
    call.meta = {**_location(segment), "val": tuple(node.meta["val"] for node in segment.results)}
    return call


def _location(segment: Segment) -> dict[str, Any]:
    first = segment.nodes[0].meta
    return {key: first[key] for key in _LOCATION if key in first}
