"""Make a region of the traced body: check the body, cut it, and keep results apart from operands in memory."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

import torch
from torch.fx import Graph, Node

from fxstack_functionalize.metadata.records import GraphInfo, OutputSource
from fxstack_functionalize.regions.table import REGION, NotSharedError, Region, RegionTable, TracedBody
from fxstack_functionalize.torch_compat import OpOverload
from fxstack_interchange import InputKind, OutputKind, Partition, Stage
from fxstack_interchange.modules import make_graph_module
from fxstack_interchange.torch_facts.effects import is_ordered, must_run


def make_region(table: RegionTable, name: str, traced: TracedBody) -> Region:
    """Return the region of a traced body.

    Raises:
        NotSharedError: if calls of the body cannot be opaque nodes.
    """
    _check_info(traced.info)
    _check_nodes(traced.stage_graph.graph_module.graph)
    if traced.stage_graph.signature.stage is not Stage.JOINT:
        module = traced.stage_graph.graph_module
        _check_memory(module.graph, _outputs(module.graph))
        module.meta[REGION] = name
        return Region(name, traced, module)
    return _cut(name, traced, table.cut(traced.stage_graph))


def _check_info(info: GraphInfo) -> None:
    """Raise NotSharedError for inputs and outputs that only the trace around a region can handle."""
    for number, facts in enumerate(info.inputs):
        if facts.relayouts or facts.grad_visible or (facts.mutates_data and facts.requires_grad):
            raise NotSharedError(f"it changes operand {number}, which has a gradient or gets another layout")
    if info.aliases or info.custom_views:
        raise NotSharedError("a result is a view of an operand or of another value")
    positions = [facts.index for facts in info.outputs if facts.source is OutputSource.VALUE]
    if len(set(positions)) < len(positions):
        raise NotSharedError("two results are the same tensor")
    if any(facts.is_leaf for facts in info.outputs) or any(
        not facts.is_tensor and facts.source is not OutputSource.CONSTANT for facts in info.outputs
    ):
        raise NotSharedError("a result is a new leaf or a size")
    if len(info.differentiable) > 1:
        raise NotSharedError("several results have a gradient")
    if any(position < len(info.mutated) for position in info.differentiable):
        raise NotSharedError("the new value of an operand has a gradient")


def _check_nodes(graph: Graph) -> None:
    """Raise NotSharedError for nodes with effects. Calls of bodies that draw random numbers keep their order."""
    for node in graph.nodes:
        if node.op != "call_function":
            continue
        if is_ordered(node.target) or (must_run(node) and not node.users):
            raise NotSharedError(f"{node.target} has an effect")
        if "unbacked_bindings" in node.meta:
            raise NotSharedError(f"data decides the size of the result of {node.target}")
        if isinstance(node.target, OpOverload) and node.target._schema.is_mutable:
            raise NotSharedError(f"{node.target} writes to memory")


def _outputs(graph: Graph) -> tuple[Any, ...]:
    return tuple(graph.output_node().args[0])


def _storage(node: object) -> object:
    """Return the identity of the memory of a node's value."""
    value = node.meta.get("val") if isinstance(node, Node) else None
    if isinstance(value, torch.Tensor):
        return value.untyped_storage()._cdata
    return node


def _check_memory(graph: Graph, results: Sequence[Any]) -> None:
    """Raise NotSharedError if a result shares memory with an input or with another result."""
    memory = [_storage(node) for node in graph.find_nodes(op="placeholder")]
    memory += [_storage(node) for node in results if isinstance(node, Node)]
    if len(set(memory)) < len(memory):
        raise NotSharedError("a result shares memory with an operand or with another result")


def _cut(name: str, traced: TracedBody, partition: Partition) -> Region:
    """Return the region of a partition: the forward returns its own results, then the saved values that it makes."""
    forward, backward = partition.forward, partition.backward
    old_graph, count = forward.graph_module.graph, traced.info.output_count
    results = list(_outputs(old_graph))
    specs = forward.signature.outputs
    saved_by_name = {
        spec.name: node
        for spec, node in zip(specs[count:], results[count:], strict=True)
        if spec.kind is OutputKind.SAVED
    }
    backward_graph = Graph()
    roots = _BackwardInputs(old_graph, results[:count])
    copies = roots.copy(backward_graph, backward, saved_by_name)
    for node in backward.graph_module.graph.nodes:
        if node not in copies:
            copies[node] = backward_graph.node_copy(node, copies.__getitem__)
    results[count:] = roots.made
    graph = Graph()
    mapped: dict[Node, Any] = {}
    graph.graph_copy(old_graph, mapped)
    graph.output(tuple(mapped[node] if isinstance(node, Node) else node for node in results))
    _check_memory(old_graph, results)
    tangents = backward.signature.inputs_of(InputKind.TANGENT)
    by_name = {node.name: node for node in backward.graph_module.graph.find_nodes(op="placeholder")}
    if len(tangents) != 1 or len(backward.signature.inputs) != len(saved_by_name) + 1:
        raise NotSharedError("its backward has other inputs than saved values and one tangent")
    modules = (
        make_graph_module(forward.graph_module, graph, "RegionForward"),
        make_graph_module(backward.graph_module, backward_graph, "RegionBackward"),
    )
    for module in modules:
        module.meta[REGION] = name
    return Region(
        name, traced, *modules, tuple(roots.positions(graph)), by_name[tangents[0].name].meta["val"]
    )


class _BackwardInputs:
    """The saved values of a region: operands, results, or values that the forward returns besides.

    A saved view is not saved itself: the backward makes the view of the saved base.
    """

    def __init__(self, forward: Graph, results: Sequence[Any]) -> None:
        self._inputs = list(forward.find_nodes(op="placeholder"))
        self._results = list(results)
        self.made: list[Node] = []
        """The values that the forward returns for the backward alone."""
        self._order: list[Node] = []

    def copy(self, graph: Graph, backward: Any, saved: dict[Any, Node]) -> dict[Node, Node]:
        """Add the inputs of the backward to ``graph``: bases of saved values, then the tangent. Return the copies."""
        copies: dict[Node, Node] = {}
        bases: dict[Node, Node] = {}
        placeholders = backward.graph_module.graph.find_nodes(op="placeholder")
        inputs = list(zip(placeholders, backward.signature.inputs, strict=True))
        chains = {
            node: self._chain(saved[spec.target]) for node, spec in inputs if spec.kind is InputKind.SAVED
        }
        for base, _ in chains.values():
            if base not in bases:
                bases[base] = graph.placeholder(base.name)
                bases[base].meta = dict(base.meta)
                self._keep(base)
        for node, spec in inputs:
            if spec.kind is not InputKind.SAVED:
                copies[node] = graph.node_copy(node)
        for node, (base, views) in chains.items():
            value = bases[base]
            for view in views:
                replaced = value
                value = graph.node_copy(view, lambda _used, replaced=replaced: replaced)
            copies[node] = value
        return copies

    def _chain(self, node: Node) -> tuple[Node, list[Node]]:
        """Return the base of a saved value, and the view operators that make the value of the base."""
        memory = {_storage(other) for other in (*self._inputs, *self._results) if isinstance(other, Node)}
        views: list[Node] = []
        while node.op == "call_function" and _is_view(node):
            if len(node.all_input_nodes) != 1:
                break
            views.insert(0, node)
            node = node.all_input_nodes[0]
        if node not in self._inputs and node not in self._results and _storage(node) in memory:
            raise NotSharedError(f"the saved value {node.name} shares memory with an operand or a result")
        return node, views

    def _keep(self, node: Node) -> None:
        self._order.append(node)
        if node in self._inputs or node in self._results:
            return
        if not isinstance(node.meta.get("val"), torch.Tensor):
            raise NotSharedError(f"its backward needs the number {node.name}")
        self.made.append(node)

    def positions(self, _graph: Graph) -> Iterator[int]:
        """Yield for each saved value its place: -1 - number for an operand, else the number of the result."""
        everything = [*self._results, *self.made]
        for node in self._order:
            yield -1 - self._inputs.index(node) if node in self._inputs else everything.index(node)


def _is_view(node: Node) -> bool:
    """Whether a node only views the memory of its operand."""
    target = node.target
    if not isinstance(target, OpOverload) or not isinstance(node.meta.get("val"), torch.Tensor):
        return False
    aliases = [result.alias_info for result in target._schema.returns]
    named = target is torch.ops.aten._unsafe_view.default
    return named or any(info is not None and not info.is_write for info in aliases)
