"""The flow network whose minimum cut is the cheapest set of values to save.

It follows "min-cut optimal recomputation" (Horace He, 2022; the idea of Jain et al., Checkmate, as a cut).
Every node of the joint graph that the backward could use is an edge whose capacity is the cost of saving it.
Nodes on the source side are computed in the forward, nodes on the sink side are recomputed in the backward. A
cut edge is a saved value.

A node that can be cut is an edge between two vertices, any other is one vertex. A node that is never recomputed
has the source as its start. Only nodes with a path to the backward take part, so the network is about as large as
the joint graph's forward.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from functools import cached_property
from typing import TYPE_CHECKING, Any, NamedTuple

import torch
from torch.fx import Node

from fxstack_interchange import InputKind
from fxstack_partition.joint.cost import SizeModel
from fxstack_partition.joint.joint import JointFacts
from fxstack_partition.joint.narrow import narrow_dtype
from fxstack_partition.joint.ops import OpKind, base_name, is_symbolic_value
from fxstack_partition.joint.record import alias_root
from fxstack_partition.optional import networkx
from fxstack_partition.options import PartitionOptions
from fxstack_partition.policy.policy import Decision, Policy, Rule, Verdict

if TYPE_CHECKING:  # its import takes 80 ms, see optional.py
    import networkx as nx

# Limits: time is an estimate from rough device figures, unless PartitionOptions.seconds supplies
# measurements. Recomputation is bounded by rules, not weighed.

SOURCE = 0
SINK = 1

BYTE = 16
"""The capacity of one byte. Smaller units break ties between cuts of equal bytes."""

GPU_REWRITING = 0.9
"""``PartitionOptions.rewriting`` of values on a GPU: the time of a kernel and of a copy of repeated heads counts, and an
activation that only needs values that are saved anyway is recomputed."""

FUSIBLE = (OpKind.POINTWISE, OpKind.CREATION, OpKind.VIEW, OpKind.GETITEM, OpKind.SYMBOLIC, OpKind.GATHER)
"""Kinds that fuse with their users, so that recomputation adds hardly any time."""

_ALIASING = (OpKind.VIEW, OpKind.GETITEM)

_WITHIN_KERNELS = (*FUSIBLE, OpKind.REDUCTION, OpKind.INPUT, OpKind.CONSTANT)
"""Kinds that share a kernel with operators before and after them."""


class Edge(NamedTuple):
    """An edge between two vertices. An edge whose ``capacity`` is None cannot be cut."""

    start: int
    end: int
    capacity: int | None


@dataclass(frozen=True)
class Network:
    """A flow network and the relation of its edges to the joint graph.

    Vertices are integers; ``names`` has their names, ``SOURCE`` is 0, ``SINK`` is 1. No two edges have the
    same ends. ``cuttable`` and ``charged`` map an index in ``edges`` to a node: a cut of the edge saves the node in
    ``cuttable``, and recomputes the node in ``charged``. ``decisions`` has the verdict about each node that could
    be in the network.
    """

    names: tuple[str, ...]
    edges: tuple[Edge, ...]
    cuttable: dict[int, Node]
    decisions: dict[Node, Decision]
    charged: dict[int, Node] = field(default_factory=dict)

    @cached_property
    def savable(self) -> frozenset[Node]:
        """Return the nodes that a cut can save."""
        return frozenset(self.cuttable.values())

    @cached_property
    def reasons(self) -> tuple[tuple[str, str], ...]:
        """Return (node name, "rule: reason") for each node about which a rule decided."""
        return tuple(
            (node.name, f"{decision.rule.name}: {decision.rule.reason}")
            for node, decision in self.decisions.items()
        )

    @cached_property
    def infinite(self) -> int:
        """Return a capacity that exceeds the capacity of every cut of finite edges."""
        return sum(edge.capacity for edge in self.edges if edge.capacity is not None) + 1

    @cached_property
    def graph(self) -> nx.DiGraph:
        """Return the network as a networkx graph, with ``capacity`` on edges that have one."""
        graph: nx.DiGraph = networkx().DiGraph()
        graph.add_nodes_from((vertex, {"name": name}) for vertex, name in enumerate(self.names))
        for start, end, capacity in self.edges:
            graph.add_edge(start, end, **({} if capacity is None else {"capacity": capacity}))
        return graph


class _Builder:
    """Collects vertices and edges of a network. Edges with the same ends become one edge with the summed capacity."""

    def __init__(self) -> None:
        self.names = ["source", "sink"]
        self.edges: dict[tuple[int, int], int | None] = {}
        self.cuttable: dict[tuple[int, int], Node] = {}
        self.charged: dict[tuple[int, int], Node] = {}

    def add_vertex(self, name: str) -> int:
        """Add a vertex, and return its number."""
        self.names.append(name)
        return len(self.names) - 1

    def add_uncuttable(self, start: int, end: int) -> None:
        """Add an edge that no cut may cross."""
        self.edges[start, end] = None

    def add_edge(self, start: int, end: int, capacity: int) -> None:
        """Add an edge that a cut can cross at the price ``capacity``."""
        # An edge that cannot be cut stays so: the other capacity adds nothing to infinity.
        before = self.edges.get((start, end), 0)
        self.edges[start, end] = None if before is None else before + capacity

    def finish(self, decisions: dict[Node, Decision]) -> Network:
        """Return the network, with ``cuttable`` and ``charged`` by the index of their edges."""
        edges = tuple([Edge(start, end, capacity) for (start, end), capacity in self.edges.items()])
        cuttable, charged = (
            {index: nodes[ends] for index, ends in enumerate(self.edges) if ends in nodes} if nodes else {}
            for nodes in (self.cuttable, self.charged)
        )
        return Network(tuple(self.names), edges, cuttable, decisions, charged)


def build_flow_network(
    facts: JointFacts,
    rules: tuple[Rule, ...],
    options: PartitionOptions,
    penalty: Callable[[Node], int] | None = None,
    *,
    factor: Callable[[Node], int] | None = None,
    traffic: bool = True,
) -> Network:
    """Build the network of a joint graph under a policy.

    ``penalty`` returns the cost of recomputing a node, in units of ``1 / BYTE`` bytes; without ``penalty``
    recomputation is free. ``factor`` multiplies the cost of saving a value. Without ``traffic`` each value
    costs its bytes. With ``traffic``, a value costs twice its bytes if a fusing compiler would not write it
    to memory in the forward, because saving adds a write.
    """
    users = _backward_users(facts)
    decisions = _decide(facts, Policy(rules, facts, options), users)
    weights = Weights(facts, options, traffic=traffic)
    builder = _Builder()
    leaves: dict[Node, int] = {}
    for node, decision in decisions.items():
        keep = decision.verdict is Verdict.KEEP
        cut = decision.verdict is not Verdict.RECOMPUTE and _is_single(node)
        entry = SOURCE if keep else builder.add_vertex(f"{node.name}:in" if cut else node.name)
        leave = builder.add_vertex(f"{node.name}:out") if cut or keep else entry
        leaves[node] = leave
        if cut:
            price = weights.save_cost(node) * (factor(node) if factor is not None else 1)
            builder.add_edge(entry, leave, price)
            builder.cuttable[entry, leave] = node
        elif keep:
            builder.add_uncuttable(entry, leave)
        if not keep:
            for arg in facts.inputs[node]:
                if arg in leaves:
                    builder.add_uncuttable(leaves[arg], entry)
            price = (penalty(node) if penalty is not None else 0) + weights.rewrite_cost(node)
            if price:
                builder.add_edge(SOURCE, entry, price)
                builder.charged[SOURCE, entry] = node
        if users[node]:
            builder.add_uncuttable(leave, SINK)
    return builder.finish(decisions)


def _backward_users(facts: JointFacts) -> dict[Node, bool]:
    """Return node -> whether the backward reads the node directly, for each node with a path to the backward.

    A gradient that the forward computes counts as a direct read.
    """
    direct: set[Node] = set()
    gradients = [value for value in facts.gradients if isinstance(value, Node)]
    direct.update(value for value in gradients if value not in facts.backward)
    for node in facts.nodes[:-1]:
        if node in facts.backward:
            direct.update(arg for arg in facts.inputs[node] if arg not in facts.backward)
    reaching = set(direct)
    for node in reversed(facts.nodes[:-1]):
        if node in reaching:
            reaching.update(facts.inputs[node])
    return {node: node in direct for node in facts.nodes[:-1] if node in reaching}


def _decide(facts: JointFacts, policy: Policy, users: dict[Node, bool]) -> dict[Node, Decision]:
    """Return the policy's decision about each node, without nodes that both graphs hold anyway.

    If a value must be recomputed, its elements and views must be recomputed as well: saving one would save
    the same memory.
    """
    decisions: dict[Node, Decision] = {}
    for node in users:
        decision = policy.decide(node)
        if facts.kinds[node] in (OpKind.VIEW, OpKind.GETITEM):
            base = node.args[0]
            base_decision = decisions.get(base) if isinstance(base, Node) else None
            if base_decision is not None and base_decision.verdict is Verdict.RECOMPUTE:
                decision = base_decision
        if decision.verdict is not Verdict.FREE:
            decisions[node] = decision
    return decisions


def _is_single(node: Node) -> bool:
    """Whether the node has a single result. The elements of several results are saved one by one."""
    return not isinstance(node.meta.get("val"), tuple | list)


class Weights:
    """The cost of saving each node, in units of ``1 / BYTE`` bytes. The units below a byte break ties."""

    def __init__(self, facts: JointFacts, options: PartitionOptions, *, traffic: bool = True) -> None:
        self._facts = facts
        self._options = options
        self._sizes = SizeModel(facts.graph, options)
        self._static = options.static_inputs | {InputKind.SYMBOL}
        self._traffic = traffic
        self._written = _materialized(facts, self._sizes) if traffic else frozenset(facts.nodes)
        self._rewritten = _rewritten(facts) if traffic else frozenset()

    def rewrite_cost(self, node: Node) -> int:
        """Return the cost of writing ``node`` to memory again, if the backward must do so to recompute it; else 0."""
        if node not in self._rewritten or node not in self._written:
            return 0
        value, weight = node.meta.get("val"), self._options.rewriting
        if weight is None:
            weight = GPU_REWRITING if isinstance(value, torch.Tensor) and value.device.type != "cpu" else 0.0
        return int(self._sizes.value_bytes(value) * BYTE * weight)

    def save_cost(self, node: Node) -> int:
        """Return the cost of saving ``node``: 1 for numbers and for inputs that stay in memory anyway."""
        value: Any = node.meta.get("val")
        if value is None or is_symbolic_value(value):
            return 1
        spec = self._facts.input_specs.get(node)
        copied = self._facts.copied
        is_copied = bool(copied) and alias_root(node) in copied
        if spec is not None and not is_copied and spec.kind in self._static:
            return 1
        size = self._sizes.value_bytes(value)
        written = node in self._written and not is_copied
        dtype = narrow_dtype(node) if self._options.narrow else None
        if dtype is not None:
            # The narrow copy is written in addition to the value itself.
            size, written = size // value.dtype.itemsize * dtype.itemsize, not self._traffic
        # Among equal costs, a value costs less memory than its conversion to a wider dtype.
        tie = 3 if _widens(node) else 2 if self._facts.kinds[node] is OpKind.VIEW else 1
        return size * BYTE * (1 if written else 2) + tie


def _rewritten(facts: JointFacts) -> frozenset[Node]:
    """Return the elementwise results that the backward writes to memory if it recomputes them.

    These are the operands of products and of other operators that do not fuse, such as a layer's activation, which the
    gradient of the next layer's weight reads.
    """
    found: set[Node] = set()
    for node in facts.nodes[:-1]:
        if node in facts.backward and facts.kinds[node] not in _WITHIN_KERNELS:
            waiting = [*facts.inputs[node]]
            while waiting:
                operand = waiting.pop()
                if facts.kinds[operand] in _ALIASING:
                    waiting += facts.inputs[operand][:1]
                elif facts.kinds[operand] in FUSIBLE and operand in facts.forward:
                    found.add(operand)
    return frozenset(found)


def _widens(node: Node) -> bool:
    """Whether ``node`` converts a tensor to a dtype of more bytes."""
    source = node.args[0] if base_name(node.target) in {"_to_copy", "convert_element_type"} else None
    value = source.meta.get("val") if isinstance(source, Node) else None
    return isinstance(value, torch.Tensor) and node.meta["val"].itemsize > value.itemsize


def _materialized(facts: JointFacts, sizes: SizeModel) -> frozenset[Node]:
    """Return the nodes whose values a fusing compiler writes to memory in the forward, saved or not.

    These are outputs, results of operators that do not fuse, their arguments, and values that are read late.
    """
    written = {value for value in facts.forward_outputs if isinstance(value, Node)}
    written.update(facts.primals)
    written.update(_read_late(facts, sizes))
    for node in reversed(facts.nodes[:-1]):
        if node not in facts.forward:
            continue
        fusible = facts.kinds[node] in FUSIBLE
        if not fusible:
            written.add(node)
        if not fusible or (facts.kinds[node] in _ALIASING and node in written):
            written.update(facts.inputs[node])
    for node in facts.nodes[:-1]:
        # An element or a view of a written value (or of a number, ``3j.conj()``) needs no write.
        if facts.kinds[node] in _ALIASING and written.issuperset(facts.inputs[node][:1]):
            written.add(node)
    return frozenset(written)


def _read_late(facts: JointFacts, sizes: SizeModel) -> Iterator[Node]:
    """Yield the elementwise results that the forward reads beside a result of a later operator that does not fuse.

    An example is a sum of residuals, which the next sum reads behind a product. No kernel spans that product, so the
    value is in memory, unless its own operands take less memory than two such values: then the reader reads these.
    A value with one reader, whose other operand does not depend on it, is counted as well, although it may stay in
    registers: its operands are as many bytes.
    """
    level: dict[Node, int] = {}
    for node in facts.nodes[:-1]:
        if node in facts.forward:
            before = max((level.get(arg, 0) for arg in facts.inputs[node]), default=0)
            level[node] = before + (facts.kinds[node] not in _WITHIN_KERNELS)
    for node, own in level.items():
        if facts.kinds[node] is not OpKind.POINTWISE or not isinstance(node.meta.get("val"), torch.Tensor):
            continue
        readers = (user for user in node.users if user in level)
        late = any(level[arg] > own for user in readers for arg in facts.inputs[user] if arg in level)
        values = [arg.meta.get("val") for arg in facts.inputs[node]]
        operands = sum(sizes.tensor_bytes(value) for value in values if isinstance(value, torch.Tensor))
        if late and operands >= 2 * sizes.tensor_bytes(node.meta["val"]):
            yield node
