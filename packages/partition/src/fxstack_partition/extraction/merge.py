"""Merge repeated nodes of a joint graph: nodes that compute the same value from the same arguments.

Autograd and decompositions write the same computation more than once. A merged node runs once, and its
arguments may die after the first use. (Value numbering: Alpern, Wegman and Zadeck, Detecting Equality of
Variables in Programs, 1988.) But the merged value lives longer. So nodes are merged only if merging frees at
least as many bytes as the value holds.

Four groups are not merged: nodes that must not run twice or are unknown, values whose memory the graph updates,
results of the graph (two results must stay two tensors), and nodes with different recompute tags.
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
    """Return the facts of ``joint`` with repeated nodes merged. ``joint`` itself does not change.

    Raises:
        JointGraphError: as ``analyze``.
    """
    facts = analyze(joint)
    return merge_repeated_nodes(facts, options) or facts


def merge_repeated_nodes(facts: JointFacts, options: PartitionOptions) -> JointFacts | None:
    """Return the facts of the joint graph with repeated nodes merged; None if merging saves no memory."""
    same = find_repetitions(facts, options)
    if not any(facts.storages.allocated[node] for node in same):
        return None
    return analyze(_without_repeated(facts, same))


def find_repetitions(facts: JointFacts, options: PartitionOptions) -> dict[Node, Node]:
    """Map each node that repeats an earlier node to the first equal node, where merging saves memory.

    A view, an element or a size is merged only if its base is merged.
    """
    groups = _groups(facts, options)
    allocating = [others for first, others in groups.items() if facts.kinds[first] not in _ALIASES]
    last = _last_readers(facts, [others[-1] for others in allocating])
    table = facts.storages
    same: dict[Node, Node] = {}
    for first, others in groups.items():
        if facts.kinds[first] in _ALIASES:
            read = [same.get(arg, arg) for arg in facts.inputs[first]]
            others = [n for n in others if [same.get(a, a) for a in facts.inputs[n]] == read]  # noqa: PLW2901
        else:
            freed = {s for s in table.reads(others[-1]) if last[s] is others[-1]}
            if sum(table.sizes[s] for s in freed) < sum(table.sizes[s] for s in table.allocated[first]):
                continue
        same.update(dict.fromkeys(others, first))
    return same


def _last_readers(facts: JointFacts, nodes: Iterable[Node]) -> dict[int, Node]:
    """Map each storage that ``nodes`` read to the last node of the graph that reads it."""
    table = facts.storages
    missing = {storage for node in nodes for storage in table.reads(node)}
    last: dict[int, Node] = {}
    for node in reversed(facts.nodes) if missing else ():
        for storage in missing.intersection(table.reads(node)):
            last[storage] = node
            missing.remove(storage)
    return last


def _groups(facts: JointFacts, options: PartitionOptions) -> dict[Node, list[Node]]:
    """Map the first of several equal nodes to the other equal nodes, in order."""
    written = {
        alias_root(argument)
        for node in facts.nodes[:-1]
        if facts.kinds[node] is OpKind.EFFECT
        for argument in written_arguments(node)
    }
    results = _with_bases((*facts.forward_outputs, *facts.gradients))
    numbers = _ValueNumbers(facts, options)
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


class _ValueNumbers:
    """Finds equal nodes by value numbering. ``same`` maps a node to the node that replaces it."""

    def __init__(self, facts: JointFacts, options: PartitionOptions) -> None:
        self._facts = facts
        self._options = options
        self._candidates: dict[object, list[Node]] = {}
        self._keys: dict[Node, object] = {}
        self.same: dict[Node, Node] = {}

    def first_like(self, node: Node) -> Node:
        """Return the first node with the same target, arguments, recompute tag and side, or ``node`` itself."""
        same = self.same
        reads = tuple([same.get(arg, arg) for arg in self._facts.inputs[node]])
        candidates = self._candidates.setdefault((node.target, reads), [])
        # Most nodes are the only reader of their arguments, and need no closer comparison.
        key = self._key_of(node) if candidates else None
        for first in candidates:
            if self._key_of(first) == key:
                return first
        candidates.append(node)
        return node

    def _key_of(self, node: Node) -> object:
        """Return the key of a node, computed once. Nodes with equal keys compute the same value."""
        if node not in self._keys:
            self._keys[node] = self._compute_key(node)
        return self._keys[node]

    def _compute_key(self, node: Node) -> object:
        arguments = structural_key((node.args, node.kwargs), lambda arg: self.same.get(arg, arg))
        return effective_tag(node, self._options), node in self._facts.forward, arguments


def _with_bases(values: Iterable[object]) -> set[Node]:
    """Return the nodes among these values, and the bases of their views."""
    nodes: set[Node] = set()
    for value in values:
        node = value
        while isinstance(node, Node) and node not in nodes:
            nodes.add(node)
            node = node.args[0] if is_view(node) and node.args else None
    return nodes


def _without_repeated(facts: JointFacts, same: dict[Node, Node]) -> StageGraph:
    """Return the joint graph in which the values of ``same`` replace its keys."""
    graph = Graph()
    env: dict[Node, Node] = {}
    for node in facts.nodes:
        replacement = same.get(node)
        env[node] = env[replacement] if replacement is not None else copy_node(graph, node, env)
    module = make_graph_module(facts.graph.graph_module, graph)
    return StageGraph(module, facts.graph.signature)


def structural_key(value: object, identity: Callable[[Node], object]) -> object:
    """Return a value that is equal for equal arguments only.

    Arguments of different types, and zeros of different sign, are different.

    ``identity`` returns the value that represents a node.
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
