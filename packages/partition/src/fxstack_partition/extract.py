"""Cut a joint graph in two, given what is saved.

The forward computes its outputs and what is saved; the backward starts from the saved values and tangents,
computes again what it needs beyond them, and returns the gradients. Nodes keep their names.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

import torch
from torch.fx import Graph, Node
from torch.fx._lazy_graph_module import _LazyGraphModule

from fxstack_interchange import (
    GraphSignature,
    InputKind,
    InputSpec,
    OutputKind,
    OutputSpec,
    Partition,
    Stage,
    StageGraph,
)
from fxstack_partition.compact import Compact
from fxstack_partition.order import best_order
from fxstack_partition.plan import PartitionError, closure, make_plan
from fxstack_partition.symbols import SizeOf, free_symbols

if TYPE_CHECKING:
    from collections.abc import Iterable

    from fxstack_partition.joint import JointFacts
    from fxstack_partition.options import PartitionOptions

__all__ = ["PartitionError", "extract"]


def extract(
    facts: JointFacts,
    saved: Iterable[Node],
    reasons: Iterable[tuple[str, str]] = (),
    options: PartitionOptions | None = None,
) -> Partition:
    """Build the two graphs that hand over exactly ``saved`` and the symbols the backward needs.

    The backward's order is chosen by its memory: with ``options`` as these describe it, else with symbols at their hints.

    Raises:
        PartitionError: the backward would have to recompute what must not be, or lacks an input.
    """
    graph = facts.compact if options is None else Compact(facts, options)
    plan = make_plan(graph, (facts.position[node] for node in saved))
    handed = tuple(graph.nodes[place] for place in plan.handed)
    forward, handed_over = _forward(facts, handed, plan.sizes)
    order = [graph.nodes[place] for place in best_order(graph, plan)[0]]
    backward = _backward(facts, order, handed_over)
    again = (n for p, n in enumerate(graph.nodes) if plan.needed[p] and not graph.backward[p])
    return Partition(
        forward=forward,
        backward=backward,
        saved=tuple(item.name for item in handed_over),
        recomputed=tuple(n.name for n in again if n.op != "get_attr"),
        reasons=tuple(reasons),
    )


def _map(value: object, env: dict[Node, Node]) -> Any:
    return env[value] if isinstance(value, Node) else value


@dataclass(frozen=True, slots=True)
class HandedOver:
    """One saved value: its node in the joint graph (None for a size), its names, its metadata."""

    node: Node | None
    name: str
    forward_name: str
    meta: dict[str, Any]


def _forward(
    facts: JointFacts, handed: tuple[Node, ...], sizes: tuple[SizeOf, ...]
) -> tuple[StageGraph, tuple[HandedOver, ...]]:
    """Build the forward; also return what it hands over, in order."""
    places = (facts.position[node] for node in handed)
    needed = closure(facts.compact, places, facts.compact.forward)
    graph = Graph()
    env: dict[Node, Node] = {}
    shields: dict[Node, Node] = {}
    shielded = {node for node in handed if facts.position[node] in facts.compact.shields}
    last_primal = facts.primals[-1] if facts.primals else None
    # All placeholders come first: the forward has the joint graph's primals, used or not.
    for node in (*facts.primals, *(n for p, n in enumerate(facts.nodes[:-1]) if needed[p])):
        if node not in env:
            env[node] = graph.node_copy(node, env.__getitem__)
        if node in shielded and node not in shields and node.op != "placeholder":
            shields[node] = _shield(graph, env[node])
        elif node is last_primal:
            # Copies of inputs come before anything can update them.
            shields.update((n, _shield(graph, env[n])) for n in facts.primals if n in shielded)
    leaving = [(node, shields.get(node, env[node])) for node in handed]
    read = [_read_size(graph, size, env) for size in sizes]
    over = [HandedOver(node, node.name, value.name, node.meta) for node, value in leaving]
    over += [HandedOver(None, value.name, value.name, value.meta) for value in read]
    outputs = [_map(value, env) for value in facts.forward_outputs]
    graph.output((*outputs, *(value for _, value in leaving), *read))
    specs = [OutputSpec(OutputKind.SAVED, item.forward_name) for item in over]
    inputs = tuple(facts.input_specs[node] for node in facts.primals)
    symbols = facts.graph.signature.symbols
    stage = GraphSignature(Stage.FORWARD, inputs, (*facts.forward_specs, *specs), symbols)
    module = _LazyGraphModule(facts.graph.graph_module, graph, "Forward")
    return StageGraph(module, stage), tuple(over)


def _read_size(graph: Graph, size: SizeOf, env: dict[Node, Node]) -> Node:
    target = torch.ops.aten.sym_size.int
    node = graph.call_function(target, (env[size.primal], size.dimension))
    node.meta["val"] = size.value
    return node


def _shield(graph: Graph, node: Node) -> Node:
    copy = graph.call_function(torch.ops.aten.clone.default, (node,))
    copy.meta = dict(node.meta)
    value = node.meta.get("val")
    if isinstance(value, torch.Tensor):
        copy.meta["val"] = torch.ops.aten.clone.default(value)
    return copy


def _backward(
    facts: JointFacts,
    order: Iterable[Node],
    handed: tuple[HandedOver, ...],
) -> StageGraph:
    graph = Graph()
    env: dict[Node, Node] = {}
    inputs: list[InputSpec] = []
    for item in handed:
        placeholder = graph.placeholder(item.name)
        placeholder.meta = dict(item.meta)
        inputs.append(InputSpec(InputKind.SAVED, placeholder.name, item.forward_name))
        if item.node is not None:
            env[item.node] = placeholder
    for node in facts.tangents:
        env[node] = graph.node_copy(node, env.__getitem__)
        inputs.append(replace(facts.input_specs[node], name=env[node].name))
    for node in order:
        env[node] = graph.node_copy(node, env.__getitem__)
    values = [_map(value, env) for value in facts.gradients]
    graph.output(tuple(values))
    outputs = tuple(
        replace(spec, name=value.name if isinstance(value, Node) else None)
        for spec, value in zip(facts.gradient_specs, values, strict=True)
    )
    mentioned = {name for node in graph.nodes for name in free_symbols(node.meta.get("val"))}
    symbols = tuple(s for s in facts.graph.signature.symbols if s.name in mentioned)
    signature = GraphSignature(Stage.BACKWARD, tuple(inputs), outputs, symbols)
    return StageGraph(_LazyGraphModule(facts.graph.graph_module, graph, "Backward"), signature)
