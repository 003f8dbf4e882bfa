"""Build the forward and the backward graph of a plan.

The forward returns its outputs and the saved values. The backward gets the saved values and the tangents,
recomputes the other values that it needs, and returns the gradients. Nodes keep the joint graph's names.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from enum import Enum
from typing import Any

import torch
from torch.fx import Graph, Node
from torch.fx.node import map_arg

from fxstack_interchange import (
    GraphSignature,
    InputKind,
    InputSpec,
    OutputKind,
    OutputSpec,
    Stage,
    StageGraph,
)
from fxstack_interchange.modules import make_graph_module
from fxstack_partition.joint.index_graph import IndexGraph, SizeOf, free_symbols
from fxstack_partition.joint.joint import JointFacts
from fxstack_partition.joint.narrow import narrow_dtype
from fxstack_partition.joint.rng_replay import draw_and_save_state, replay_draw
from fxstack_partition.ordering.plan import Plan

_set = object.__setattr__
"""Set an attribute directly: ``Node.__setattr__`` would update the tables of the node's graph."""


def copy_node(graph: Graph, node: Node, env: Mapping[Node, Node]) -> Node:
    """Add a copy of ``node`` to the end of ``graph``, with arguments replaced by ``env``."""
    # ``Graph.node_copy`` would take most of a partition's time: it searches the arguments for raw symbols, and updates
    # tables for each attribute. The original's arguments were checked before.
    copy = graph.create_node(node.op, node.target, None, None, node.name, node.type)
    find = env.__getitem__
    _set(copy, "args", map_arg(node.args, find))
    if node.kwargs:
        _set(copy, "kwargs", map_arg(node.kwargs, find))
    copy.meta.update(node.meta)
    return copy


def _map(value: object, env: dict[Node, Node]) -> Any:
    return env[value] if isinstance(value, Node) else value


class Form(Enum):
    """The form in which the forward saves a value."""

    UNCHANGED = "value"
    NARROW = "in a smaller dtype"
    STATE = "as the state of the generator that it is drawn from"


@dataclass(frozen=True, slots=True)
class SavedValue:
    """A saved value. ``node`` is its node in the joint graph; None for the size of an input.

    ``name`` is the backward's name, ``forward_name`` the name of the forward's node that is returned.
    """

    node: Node | None
    name: str
    forward_name: str
    meta: dict[str, Any]
    form: Form = Form.UNCHANGED


def extend_reasons(
    reasons: Iterable[tuple[str, str]], saved_values: tuple[SavedValue, ...]
) -> Iterable[tuple[str, str]]:
    """Yield the reasons of the rules, extended by the form of values that are not saved unchanged."""
    forms = {item.name: item for item in saved_values if item.form is not Form.UNCHANGED}
    for name, reason in reasons:
        item = forms.get(name)
        if item is not None:
            dtype = str(item.meta["val"].dtype).removeprefix("torch.")
            reason = f"{reason}; narrow: saved as {dtype}, which holds its values exactly"  # noqa: PLW2901
        yield name, reason
    for item in saved_values:
        if item.form is Form.STATE and item.node is not None:
            yield item.name, f"drawn again: the generator's state before {item.node.name!r}"


class _ForwardBuilder:
    """A forward graph under construction.

    Four maps have the joint graph's nodes as keys: ``env`` to the copies of nodes, ``copies`` to clones of
    updated values, ``states`` to states of the generator, and ``narrow`` to values in a smaller dtype.
    """

    def __init__(self, index_graph: IndexGraph, plan: Plan) -> None:
        self.graph = Graph()
        self.env: dict[Node, Node] = {}
        self.copies: dict[Node, Node] = {}
        self.states: dict[Node, Node] = {}
        self.narrow: dict[Node, Node] = {}
        nodes = index_graph.nodes
        self._updated_nodes = {nodes[p] for p in plan.saved_values if p in index_graph.copy_storages}
        self._replayed = {nodes[p] for p in plan.replayed}
        self._narrow_nodes = {nodes[p] for p in plan.narrowed}

    def add(self, node: Node) -> None:
        """Add a node of the joint graph, and the form in which it is saved."""
        env = self.env
        if node in self._replayed:
            env[node], self.states[node] = draw_and_save_state(self.graph, node, env)
        else:
            env[node] = copy_node(self.graph, node, env)
        if node in self._narrow_nodes:
            dtype = narrow_dtype(node)
            self.narrow[node] = _convert(self.graph, env[node], dtype, f"{node.name}_narrow")
        if node.op != "placeholder":
            self.copy_if_updated(node)

    def copy_if_updated(self, node: Node) -> None:
        """Clone ``node`` if it is saved and its memory changes before the backward."""
        if node in self._updated_nodes and node not in self.copies:
            self.copies[node] = _copy(self.graph, self.env[node])

    def saved_value(self, node: Node) -> SavedValue:
        """Return the description of a node that the forward saves: in narrow form, as a copy, or unchanged."""
        if node in self.narrow:
            value = self.narrow[node]
            return SavedValue(node, node.name, value.name, value.meta, Form.NARROW)
        value = self.copies.get(node, self.env[node])
        return SavedValue(node, node.name, value.name, node.meta)

    def state(self, node: Node) -> SavedValue:
        value = self.states[node]
        return SavedValue(node, value.name, value.name, value.meta, Form.STATE)


def forward_graph(
    index_graph: IndexGraph, plan: Plan, order: Iterable[int]
) -> tuple[StageGraph, tuple[SavedValue, ...]]:
    """Build the forward with nodes in ``order``. Return it and its saved values.

    The saved values come in the order that ``StageGraph`` prescribes: tensors, generator states, numbers.
    """
    facts, needed = index_graph.facts, plan.forward(index_graph)
    builder = _ForwardBuilder(index_graph, plan)
    graph, env = builder.graph, builder.env
    # Placeholders come first: the forward has all primals of the joint graph, used or not.
    for node in facts.primals:
        builder.add(node)
    # Copies of inputs come before any node that can update the inputs.
    for node in facts.primals:
        builder.copy_if_updated(node)
    nodes = index_graph.nodes
    for index, node in enumerate(nodes):
        if needed[index] and node.op == "get_attr":
            builder.add(node)
    for index in order:
        builder.add(nodes[index])
    saved_values = [builder.saved_value(index_graph.nodes[index]) for index in plan.saved_values]
    tensors = [item for item in saved_values if isinstance(item.meta.get("val"), torch.Tensor)]
    states = [builder.state(index_graph.nodes[index]) for index in plan.replayed]
    numbers = [item for item in saved_values if not isinstance(item.meta.get("val"), torch.Tensor)]
    sizes = [_read_size(graph, size, env) for size in plan.sizes]
    items = [*tensors, *states, *numbers]
    items += [SavedValue(None, value.name, value.name, value.meta) for value in sizes]
    outputs = [_map(value, env) for value in facts.forward_outputs]
    by_name = {node.name: node for node in graph.nodes}
    graph.output((*outputs, *(by_name[item.forward_name] for item in items)))
    specs = [OutputSpec(OutputKind.SAVED, item.forward_name) for item in items]
    inputs = tuple(facts.input_specs[node] for node in facts.primals)
    symbols = facts.graph.signature.symbols
    stage = GraphSignature(Stage.FORWARD, inputs, (*facts.forward_specs, *specs), symbols)
    module = make_graph_module(facts.graph.graph_module, graph, "Forward", deferred=True)
    return StageGraph(module, stage), tuple(items)


def _convert(graph: Graph, node: Node, dtype: object, name: str) -> Node:
    """Add a conversion of ``node`` to ``dtype``: to the narrow form in the forward, and back in the backward."""
    copy = graph.create_node(
        "call_function", torch.ops.aten._to_copy.default, (node,), {"dtype": dtype}, name
    )
    value = torch.ops.aten._to_copy.default(node.meta["val"], dtype=dtype)
    copy.meta = {**node.meta, "val": value}
    return copy


def _read_size(graph: Graph, size: SizeOf, env: dict[Node, Node]) -> Node:
    """Add a node to the forward that reads a size of an input, which the backward needs as a symbol."""
    target = torch.ops.aten.sym_size.int
    node = graph.call_function(target, (env[size.primal], size.dimension))
    node.meta["val"] = size.value
    return node


def _copy(graph: Graph, node: Node) -> Node:
    """Add a copy of a saved value that an in-place update of an input would change."""
    copy = graph.call_function(torch.ops.aten.clone.default, (node,))
    copy.meta = dict(node.meta)
    value = node.meta.get("val")
    if isinstance(value, torch.Tensor):
        copy.meta["val"] = torch.ops.aten.clone.default(value)
    return copy


def backward_graph(
    facts: JointFacts, order: Iterable[Node], saved_values: tuple[SavedValue, ...]
) -> StageGraph:
    """Return the backward with its signature.

    ``order``: the nodes that run, in this order. ``saved_values``: its first inputs, as the forward returns them.
    """
    graph = Graph()
    env: dict[Node, Node] = {}
    placeholders: dict[tuple[Node | None, Form], Node] = {}
    inputs: list[InputSpec] = []
    for item in saved_values:
        name = item.forward_name if item.form is Form.NARROW else item.name
        placeholder = graph.placeholder(name)
        placeholder.meta = dict(item.meta)
        inputs.append(InputSpec(InputKind.SAVED, placeholder.name, item.forward_name))
        placeholders[item.node, item.form] = placeholder
        if item.node is not None and item.form is Form.UNCHANGED:
            env[item.node] = placeholder
    for node in facts.tangents:
        env[node] = copy_node(graph, node, env)
        inputs.append(replace(facts.input_specs[node], name=env[node].name))
    for node in order:
        state, narrow = (placeholders.get((node, form)) for form in (Form.STATE, Form.NARROW))
        if state is not None:
            env[node] = replay_draw(graph, node, state, env)
        elif narrow is not None:
            env[node] = _convert(graph, narrow, node.meta["val"].dtype, node.name)
            env[node].meta = dict(node.meta)
        else:
            env[node] = copy_node(graph, node, env)
    values = [_map(value, env) for value in facts.gradients]
    graph.output(tuple(values))
    outputs = tuple(
        replace(spec, name=value.name if isinstance(value, Node) else None)
        for spec, value in zip(facts.gradient_specs, values, strict=True)
    )
    declared = facts.graph.signature.symbols
    node_values = (node.meta.get("val") for node in graph.nodes if declared)
    mentioned = {name for value in node_values for name in free_symbols(value)}
    symbols = tuple(s for s in declared if s.name in mentioned)
    signature = GraphSignature(Stage.BACKWARD, tuple(inputs), outputs, symbols)
    return StageGraph(
        make_graph_module(facts.graph.graph_module, graph, "Backward", deferred=True), signature
    )
