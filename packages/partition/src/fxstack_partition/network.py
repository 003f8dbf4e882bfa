"""The flow network whose minimum cut is the cheapest set of values to save.

After "min-cut optimal recomputation" (Horace He, 2022; the idea of Jain et al., Checkmate, made a cut): every
node of the joint graph that the backward could use is an edge whose capacity is the cost of saving it. The
source side is computed in the forward, the sink side again in the backward, and an edge cut is a value saved.

Nodes that cannot be cut are one vertex, nodes that are never recomputed hang on the source directly, and only
nodes with a path to the backward take part; so the network is about as large as the joint graph's forward.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import networkx as nx
from torch.fx import Node

from fxstack_interchange import InputKind
from fxstack_partition.cost import SizeModel
from fxstack_partition.ops import OpKind, is_symbolic_value
from fxstack_partition.policy import Decision, Policy, Rule, Verdict

if TYPE_CHECKING:
    from fxstack_partition.joint import JointFacts
    from fxstack_partition.options import PartitionOptions

SOURCE = "source"
SINK = "sink"

_BYTE = 16
"""Capacity of one byte; the units below it break ties between equally large cuts."""

_FUSIBLE = (
    OpKind.POINTWISE,
    OpKind.CREATION,
    OpKind.VIEW,
    OpKind.GETITEM,
    OpKind.SYMBOLIC,
    OpKind.GATHER,
)
_PASSING = (OpKind.VIEW, OpKind.GETITEM)


@dataclass(frozen=True)
class Network:
    """A flow network and how its vertices relate to the joint graph.

    ``cuttable`` maps an edge of ``graph`` to the node that is saved when the edge is cut. An edge
    without a ``capacity`` cannot be cut; ``infinite`` is the capacity that solvers give it.
    """

    graph: nx.DiGraph[str]
    cuttable: dict[tuple[str, str], Node]
    decisions: dict[Node, Decision]
    infinite: int


def build(facts: JointFacts, rules: tuple[Rule, ...], options: PartitionOptions) -> Network:
    """Build the network of a joint graph under a policy."""
    policy = Policy(rules, facts, options)
    users = _backward_users(facts)
    decisions = _decide(facts, policy, users)
    weights = _Weights(facts, options)
    graph: nx.DiGraph[str] = nx.DiGraph()
    graph.add_nodes_from((SOURCE, SINK))
    cuttable: dict[tuple[str, str], Node] = {}
    for node, decision in decisions.items():
        entry, leave = _ends(node, decision)
        capacity = _capacity(node, decision, weights)
        if capacity is None:
            if entry != leave:
                graph.add_edge(entry, leave)
        else:
            graph.add_edge(entry, leave, capacity=capacity)
            cuttable[entry, leave] = node
        if decision.verdict is not Verdict.KEEP:
            _connect(graph, node, entry, decisions)
        if users[node]:
            graph.add_edge(leave, SINK)
    total = sum(data.get("capacity", 0) for _, _, data in graph.edges(data=True))
    return Network(graph, cuttable, decisions, total + 1)


def _connect(
    graph: nx.DiGraph[str],
    node: Node,
    entry: str,
    decisions: dict[Node, Decision],
) -> None:
    for arg in node.all_input_nodes:
        if arg in decisions:
            graph.add_edge(_ends(arg, decisions[arg])[1], entry)


def _backward_users(facts: JointFacts) -> dict[Node, bool]:
    """Map each node with a path to the backward to whether the backward reads it directly."""
    direct: set[Node] = set()
    gradients = [value for value in facts.gradients if isinstance(value, Node)]
    direct.update(value for value in gradients if value not in facts.backward)
    for node in facts.nodes[:-1]:
        if node in facts.backward:
            direct.update(arg for arg in node.all_input_nodes if arg not in facts.backward)
    reaching = set(direct)
    for node in reversed(facts.nodes[:-1]):
        if node in reaching:
            reaching.update(node.all_input_nodes)
    return {node: node in direct for node in facts.nodes[:-1] if node in reaching}


def _decide(facts: JointFacts, policy: Policy, users: dict[Node, bool]) -> dict[Node, Decision]:
    """Apply the policy; elements and views of a value that must be recomputed must be so too."""
    decisions: dict[Node, Decision] = {}
    for node in users:
        decision = policy.decide(node)
        if facts.kinds[node] in (OpKind.VIEW, OpKind.GETITEM):
            base = node.args[0]
            above = decisions.get(base) if isinstance(base, Node) else None
            if above is not None and above.verdict is Verdict.RECOMPUTE:
                decision = above
        if decision.verdict is not Verdict.FREE:
            decisions[node] = decision
    return decisions


def _ends(node: Node, decision: Decision) -> tuple[str, str]:
    """Return the vertices at which edges enter and leave ``node``."""
    if decision.verdict is Verdict.KEEP:
        return (SOURCE, node.name)
    if decision.verdict is Verdict.RECOMPUTE or not _is_single(node):
        return (node.name, node.name)
    return (f"{node.name}:in", f"{node.name}:out")


def _is_single(node: Node) -> bool:
    """Whether the value can be handed over as one: several results are saved one by one."""
    return not isinstance(node.meta.get("val"), tuple | list)


def _capacity(node: Node, decision: Decision, weights: _Weights) -> int | None:
    if decision.verdict is Verdict.RECOMPUTE or not _is_single(node):
        return None
    return weights.of(node)


class _Weights:
    """The cost of saving a node: bytes written and read, in units that leave room for ties."""

    def __init__(self, facts: JointFacts, options: PartitionOptions) -> None:
        self._facts = facts
        self._options = options
        self._sizes = SizeModel(facts.graph, options)
        self._materialized = _materialized(facts)

    def of(self, node: Node) -> int:
        value: Any = node.meta.get("val")
        if value is None or is_symbolic_value(value):
            return 1
        spec = self._facts.input_specs.get(node)
        is_copied = self._facts.alias_root(node) in self._facts.mutated
        static = self._options.static_inputs | {InputKind.SYMBOL}
        if spec is not None and not is_copied and spec.kind in static:
            return 1
        size = self._sizes.value_bytes(value)
        written = node in self._materialized and not is_copied
        tie = 2 if self._facts.kinds[node] is OpKind.VIEW else 1
        return size * _BYTE * (1 if written else 2) + tie


def _materialized(facts: JointFacts) -> frozenset[Node]:
    """Return the nodes whose values a fusing compiler writes to memory in the forward anyway."""
    found = {value for value in facts.forward_outputs if isinstance(value, Node)}
    found.update(facts.primals)
    for node in reversed(facts.nodes[:-1]):
        if node not in facts.forward:
            continue
        fusible = facts.kinds[node] in _FUSIBLE
        if not fusible:
            found.add(node)
        if not fusible or (facts.kinds[node] in _PASSING and node in found):
            found.update(node.all_input_nodes)
    for node in facts.nodes[:-1]:
        # An element or a view of what is written needs no write of its own.
        if facts.kinds[node] in _PASSING and node.all_input_nodes[0] in found:
            found.add(node)
    return frozenset(found)
