"""Merge repetitions in a joint graph: nodes that compute the same value from the same arguments.

Autograd and decompositions write the same computation more than once. A merged node runs once, and its
arguments may die after the first use. (Value numbering: Alpern, Wegman and Zadeck, Detecting Equality of
Variables in Programs, 1988.) But the merged value lives longer, so only nodes are merged that free at least
as many bytes as they hold.

These are not merged: nodes that must not run twice or are unknown, memory that the graph writes to, results
of the graph (two results stay two tensors), and values with different tags of the program.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterable

import torch
from torch.fx import Graph, Node

from fxstack_interchange import StageGraph
from fxstack_interchange.modules import make_graph_module
from fxstack_partition.extraction.graphs import copy_node
from fxstack_partition.joint.joint import JointFacts, analyze
from fxstack_partition.joint.ops import OpKind, is_view, written_arguments
from fxstack_partition.joint.record import alias_root
from fxstack_partition.options import PartitionOptions
from fxstack_partition.policy.policy import effective_tag

_ALIASES = (OpKind.VIEW, OpKind.GETITEM, OpKind.SYMBOLIC)
_MERGED = frozenset({*_ALIASES, OpKind.POINTWISE, OpKind.GATHER, OpKind.REDUCTION, OpKind.HEAVY})


def analyze_merged(joint: StageGraph, options: PartitionOptions) -> JointFacts:
    """Return the dissected ``joint`` with merged repetitions. ``joint`` itself does not change.

    Raises:
        JointGraphError: as ``analyze``.
    """
    facts = analyze(joint)
    return merge_repeated_nodes(facts, options) or facts


def merge_repeated_nodes(facts: JointFacts, options: PartitionOptions) -> JointFacts | None:
    """Return the joint graph of ``facts`` with merged repetitions; None if merging saves no memory."""
    same = find_repetitions(facts, options)
    if not any(facts.storages.allocated[node] for node in same):
        return None
    return analyze(_without(facts, same))


def find_repetitions(facts: JointFacts, options: PartitionOptions) -> dict[Node, Node]:
    """Map each node that repeats an earlier node, and saves memory if merged, to the first such node."""
    groups = _groups(facts, options)
    making = [others for first, others in groups.items() if facts.kinds[first] not in _ALIASES]
    last = _last_readers(facts, [others[-1] for others in making])
    table = facts.storages
    found: dict[Node, Node] = {}
    for first, others in groups.items():
        if facts.kinds[first] in _ALIASES:
            read = [found.get(arg, arg) for arg in facts.inputs[first]]
            others = [n for n in others if [found.get(a, a) for a in facts.inputs[n]] == read]  # noqa: PLW2901
        else:
            freed = {s for s in table.reads(others[-1]) if last[s] is others[-1]}
            if sum(table.sizes[s] for s in freed) < sum(table.sizes[s] for s in table.allocated[first]):
                continue
        found.update(dict.fromkeys(others, first))
    return found


def _last_readers(facts: JointFacts, nodes: Iterable[Node]) -> dict[int, Node]:
    """Map the storages that ``nodes`` read to the last node of the graph that reads each."""
    table = facts.storages
    missing = {storage for node in nodes for storage in table.reads(node)}
    last: dict[int, Node] = {}
    for node in reversed(facts.nodes) if missing else ():
        for storage in missing.intersection(table.reads(node)):
            last[storage] = node
            missing.remove(storage)
    return last


def _groups(facts: JointFacts, options: PartitionOptions) -> dict[Node, list[Node]]:
    """Map the first of several equal nodes to the others, in order."""
    written = {
        alias_root(argument)
        for node in facts.nodes[:-1]
        if facts.kinds[node] is OpKind.EFFECT
        for argument in written_arguments(node)
    }
    results = _with_bases((*facts.forward_outputs, *facts.gradients))
    numbers = _Numbers(facts, options)
    groups: dict[Node, list[Node]] = {}
    for node in facts.nodes[:-1]:
        if node.op != "call_function" or facts.kinds[node] not in _MERGED:
            continue
        if written and not written.isdisjoint(map(alias_root, (node, *facts.inputs[node]))):
            continue
        first = numbers.first_like(node)
        if first is not node and node not in results:
            groups.setdefault(first, []).append(node)
            numbers.same[node] = first
    return groups


class _Numbers:
    """Finds equal nodes. ``same`` maps a node to the node that replaces it."""

    def __init__(self, facts: JointFacts, options: PartitionOptions) -> None:
        self._facts = facts
        self._options = options
        self._nearly: dict[object, list[Node]] = {}
        self._exactly: dict[Node, object] = {}
        self.same: dict[Node, Node] = {}

    def first_like(self, node: Node) -> Node:
        """Return the first node with the same target, arguments, tag and side, or ``node`` itself."""
        same = self.same
        reads = tuple([same.get(arg, arg) for arg in self._facts.inputs[node]])
        alike = self._nearly.setdefault((node.target, reads), [])
        # Most nodes are the only reader of their arguments, and need no closer comparison.
        wanted = self._closely(node) if alike else None
        for first in alike:
            if self._closely(first) == wanted:
                return first
        alike.append(node)
        return node

    def _closely(self, node: Node) -> object:
        if node not in self._exactly:
            self._exactly[node] = self._called(node)
        return self._exactly[node]

    def _called(self, node: Node) -> object:
        arguments = structural_key((node.args, node.kwargs), lambda arg: self.same.get(arg, arg))
        return effective_tag(node, self._options), node in self._facts.forward, arguments


def _with_bases(values: Iterable[object]) -> set[Node]:
    """Return the nodes among these values, and the bases of which they are views."""
    found: set[Node] = set()
    for value in values:
        node = value
        while isinstance(node, Node) and node not in found:
            found.add(node)
            node = node.args[0] if is_view(node) and node.args else None
    return found


def _without(facts: JointFacts, same: dict[Node, Node]) -> StageGraph:
    """Return the joint graph without the nodes that ``same`` maps to others."""
    graph = Graph()
    env: dict[Node, Node] = {}
    for node in facts.nodes:
        before = same.get(node)
        env[node] = env[before] if before is not None else copy_node(graph, node, env)
    module = make_graph_module(facts.graph.graph_module, graph)
    return StageGraph(module, facts.graph.signature)


def structural_key(value: object, identity: Callable[[Node], object]) -> object:
    """Return a value that is equal for equal arguments only. Types count, and so do signs of zeros.

    ``identity`` gives the identity of nodes.
    """
    if isinstance(value, Node):
        return Node, identity(value)
    if isinstance(value, tuple | list):
        return type(value), tuple(structural_key(item, identity) for item in value)
    if isinstance(value, dict):
        return dict, tuple((key, structural_key(value[key], identity)) for key in sorted(value))
    if isinstance(value, slice):
        return slice, structural_key((value.start, value.stop, value.step), identity)
    if isinstance(value, torch.SymInt | torch.SymFloat | torch.SymBool):
        return type(value), value.node.expr
    if isinstance(value, float):
        return float, value.hex()
    # An unhashable object is equal to itself alone.
    return type(value), value if isinstance(value, Hashable) else id(value)
