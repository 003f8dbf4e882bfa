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
from fxstack_partition.ops import OpKind, is_symbolic_value, written_arguments
from fxstack_partition.order import choose_order

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from fxstack_partition.joint import JointFacts


class PartitionError(ValueError):
    """A partitioner's choice of saved values cannot work; the message names the node and the rule."""


def extract(
    facts: JointFacts, saved: Iterable[Node], reasons: Iterable[tuple[str, str]] = ()
) -> Partition:
    """Build the two graphs that hand over exactly ``saved`` and the symbols the backward needs.

    Raises:
        PartitionError: the backward would have to recompute what must not be, or lacks an input.
    """
    plan = make_plan(facts, saved)
    handed, sizes, needed = plan.handed, plan.sizes, plan.needed
    forward, handed_over = _forward(facts, handed, sizes)
    backward = _backward(facts, needed, handed_over)
    recomputed = (n for n in needed if n not in facts.backward and n.op != "get_attr")
    return Partition(
        forward=forward,
        backward=backward,
        saved=tuple(item.name for item in handed_over),
        recomputed=tuple(n.name for n in sorted(recomputed, key=facts.position.__getitem__)),
        reasons=tuple(reasons),
    )


@dataclass(frozen=True, slots=True)
class Plan:
    """What a choice of saved values comes to: what is handed over, in order, and what the backward runs."""

    handed: tuple[Node, ...]
    sizes: tuple[SizeOf, ...]
    needed: frozenset[Node]

    def forward(self, facts: JointFacts) -> frozenset[Node]:
        """Return the nodes that the forward runs."""
        return frozenset(forward_closure(facts, self.handed))

    def repeated(self, facts: JointFacts) -> frozenset[Node]:
        """Return the nodes that forward and backward both run."""
        return self.needed & self.forward(facts)


def make_plan(facts: JointFacts, saved: Iterable[Node]) -> Plan:
    """Work out a choice of saved values: unread ones are dropped, symbols that sizes mention are added.

    Raises:
        PartitionError: the backward would have to recompute what must not be, or lacks an input.
    """
    chosen = dict.fromkeys(saved)
    for node in chosen:
        _check_saved(node, facts)
    needed = backward_closure(facts, frozenset(chosen))
    # What is not read is not saved; what the sizes mention has to be.
    used = {arg for node in needed for arg in node.all_input_nodes}
    used.update(value for value in facts.gradients if isinstance(value, Node))
    kept = [node for node in chosen if node in used]
    symbols, sizes = _symbols_to_save(facts, needed, kept)
    tensors = sorted((n for n in kept if not _is_number(n, facts)), key=facts.position.__getitem__)
    numbers = {n: None for n in kept if _is_number(n, facts)} | dict.fromkeys(symbols)
    scalars = sorted(numbers, key=facts.position.__getitem__)
    needed = frozenset(node for node in needed if node not in numbers)
    return Plan((*tensors, *scalars), sizes, needed)


def _is_number(node: Node, facts: JointFacts) -> bool:
    spec = facts.input_specs.get(node)
    is_symbol = spec is not None and spec.kind is InputKind.SYMBOL
    return is_symbol or is_symbolic_value(node.meta.get("val"))


def _check_saved(node: Node, facts: JointFacts) -> None:
    if node in facts.backward:
        msg = f"{node.name!r} cannot be saved: it depends on a tangent, so the forward lacks it"
        raise PartitionError(msg)
    if isinstance(node.meta.get("val"), tuple | list):
        msg = f"{node.name!r} cannot be saved: it has several results; save its elements"
        raise PartitionError(msg)


NEVER_TWICE = (OpKind.RANDOM, OpKind.EFFECT, OpKind.DATA_DEPENDENT, OpKind.COLLECTIVE)


def backward_closure(facts: JointFacts, saved: frozenset[Node]) -> frozenset[Node]:
    """Return every node the backward runs when ``saved`` is handed to it.

    Raises:
        PartitionError: it would need an input that is not saved, or run what must not run twice.
    """
    roots = [value for value in facts.gradients if isinstance(value, Node)]
    effects = (OpKind.RANDOM, OpKind.EFFECT)
    roots += [n for n in facts.nodes[:-1] if n in facts.backward and facts.kinds[n] in effects]
    needed: set[Node] = set()
    pending = [(node, "a gradient") for node in roots]
    while pending:
        node, user = pending.pop()
        if node in needed or node in saved or node in facts.tangents:
            continue
        if node not in facts.backward:
            _check_recomputable(node, user, facts)
        needed.add(node)
        pending.extend((arg, repr(node.name)) for arg in node.all_input_nodes)
    return frozenset(needed)


def _check_recomputable(node: Node, user: str, facts: JointFacts) -> None:
    kind = facts.kinds[node]
    if kind is OpKind.INPUT:
        msg = f"{node.name!r}, an input of the forward, is read by {user} in the backward: save it"
        raise PartitionError(msg)
    if kind in NEVER_TWICE:
        msg = (
            f"{node.name!r} ({kind.value}) would run a second time in the backward, for {user}: "
            "save it or what is computed from it"
        )
        raise PartitionError(msg)


@dataclass(frozen=True, slots=True)
class SizeOf:
    """A symbol that no node of the joint graph is: the forward reads it off an input's shape."""

    primal: Node
    dimension: int
    value: torch.SymInt


def _symbols_to_save(
    facts: JointFacts, needed: frozenset[Node], saved: Sequence[Node]
) -> tuple[tuple[Node, ...], tuple[SizeOf, ...]]:
    """Return what binds the symbols that sizes in the backward mention: nodes, and sizes to read."""
    wanted: dict[str, None] = {}
    for node in (*facts.tangents, *saved, *sorted(needed, key=facts.position.__getitem__)):
        wanted.update(dict.fromkeys(_free_symbols(node.meta.get("val"))))
    if not wanted:
        return (), ()
    binders: dict[str, Node] = {}
    for node in facts.nodes[:-1]:
        value = node.meta.get("val")
        if node not in facts.backward and _is_symbol(value):
            binders.setdefault(str(value.node.expr), node)
    sizes = _sizes_of_primals(facts)
    unbound = [sizes[name] for name in wanted if name not in binders and name in sizes]
    return tuple(binders[name] for name in wanted if name in binders), tuple(unbound)


def _is_symbol(value: Any) -> bool:
    return isinstance(value, torch.SymInt | torch.SymFloat) and bool(value.node.expr.is_Symbol)


def _sizes_of_primals(facts: JointFacts) -> dict[str, SizeOf]:
    found: dict[str, SizeOf] = {}
    for node in facts.primals:
        value = node.meta.get("val")
        for dimension, size in enumerate(value.shape if isinstance(value, torch.Tensor) else ()):
            if _is_symbol(size):
                found.setdefault(str(size.node.expr), SizeOf(node, dimension, size))
    return found


def _free_symbols(value: Any) -> tuple[str, ...]:
    if isinstance(value, torch.Tensor):
        parts: list[Any] = [*value.shape]
        if value.layout is torch.strided:
            parts += [*value.stride(), value.storage_offset()]
        return tuple(name for part in parts for name in _free_symbols(part))
    if isinstance(value, torch.SymInt | torch.SymFloat | torch.SymBool):
        return tuple(sorted(str(symbol) for symbol in value.node.expr.free_symbols))
    if isinstance(value, tuple | list):
        return tuple(name for item in value for name in _free_symbols(item))
    return ()


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
    needed = forward_closure(facts, handed)
    graph = Graph()
    env: dict[Node, Node] = {}
    shields: dict[Node, Node] = {}
    shielded = copied_values(facts, handed)
    last_primal = facts.primals[-1] if facts.primals else None
    # All placeholders come first: the forward has the joint graph's primals, used or not.
    for node in (*facts.primals, *(n for n in facts.nodes[:-1] if n in needed)):
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


def forward_closure(facts: JointFacts, handed: Iterable[Node]) -> set[Node]:
    """Return every node the forward runs when it hands over ``handed``."""
    needed = set(facts.forward)
    pending = list(handed)
    while pending:
        node = pending.pop()
        if node not in needed:
            needed.add(node)
            pending.extend(node.all_input_nodes)
    return needed


def _read_size(graph: Graph, size: SizeOf, env: dict[Node, Node]) -> Node:
    target = torch.ops.aten.sym_size.int
    node = graph.call_function(target, (env[size.primal], size.dimension))
    node.meta["val"] = size.value
    return node


def copied_values(facts: JointFacts, handed: tuple[Node, ...]) -> frozenset[Node]:
    """Return the saved nodes that share storage with an input the forward updates.

    They must be copied, or the backward would see the update. Inputs which the backward itself updates
    are handed over as they are.
    """
    updated = {
        arg
        for node in facts.backward
        if facts.kinds[node] is OpKind.EFFECT
        for arg in written_arguments(node)
    }
    return frozenset(n for n in handed if facts.alias_root(n) in facts.mutated and n not in updated)


def _shield(graph: Graph, node: Node) -> Node:
    copy = graph.call_function(torch.ops.aten.clone.default, (node,))
    copy.meta = dict(node.meta)
    value = node.meta.get("val")
    if isinstance(value, torch.Tensor):
        copy.meta["val"] = torch.ops.aten.clone.default(value)
    return copy


def _backward(
    facts: JointFacts,
    needed: frozenset[Node],
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
    held = tuple(item.node for item in handed if item.node is not None)
    for node in choose_order(facts, needed, held):
        env[node] = graph.node_copy(node, env.__getitem__)
    values = [_map(value, env) for value in facts.gradients]
    graph.output(tuple(values))
    outputs = tuple(
        replace(spec, name=value.name if isinstance(value, Node) else None)
        for spec, value in zip(facts.gradient_specs, values, strict=True)
    )
    mentioned = {name for node in graph.nodes for name in _free_symbols(node.meta.get("val"))}
    symbols = tuple(s for s in facts.graph.signature.symbols if s.name in mentioned)
    signature = GraphSignature(Stage.BACKWARD, tuple(inputs), outputs, symbols)
    return StageGraph(_LazyGraphModule(facts.graph.graph_module, graph, "Backward"), signature)
