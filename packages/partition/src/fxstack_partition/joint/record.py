"""The record of a joint graph: its forward, backward, inputs and outputs."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

from torch.fx import Node

from fxstack_interchange import InputSpec, OutputKind, OutputSpec, StageGraph
from fxstack_partition.joint.cost import SizeModel
from fxstack_partition.joint.ops import OpKind, is_view
from fxstack_partition.joint.storage import StorageTable
from fxstack_partition.options import PartitionOptions


@dataclass(frozen=True)
class JointRecord:
    """A joint graph and the sides of its nodes. All tuples are in graph order, so that no result depends on hashing.

    ``backward``: nodes that must run in the backward, because they depend on a tangent, or draw random numbers
    or have effects after the backward has begun. ``forward``: nodes that must run in the forward, because
    an output, a random draw or an effect of the forward needs them; the backward may recompute some of these nodes.
    Nodes in neither set may run in either graph or in both. ``inputs``: the nodes that each node reads. ``kinds``
    has an entry for every node except the output. ``copied``: inputs and outputs whose memory may change before the
    backward; a partition saves copies.
    """

    graph: StageGraph
    nodes: tuple[Node, ...]
    position: dict[Node, int]
    """The index of each node in ``nodes``."""
    inputs: dict[Node, tuple[Node, ...]]
    kinds: dict[Node, OpKind]
    primals: tuple[Node, ...]
    """The inputs of the forward."""
    tangents: tuple[Node, ...]
    """The inputs that only the backward receives."""
    forward_outputs: tuple[object, ...]
    gradients: tuple[object, ...]
    forward_specs: tuple[OutputSpec, ...]
    gradient_specs: tuple[OutputSpec, ...]
    input_specs: dict[Node, InputSpec]
    backward: frozenset[Node]
    forward: frozenset[Node]
    copied: frozenset[Node]

    @property
    def results(self) -> tuple[Node, ...]:
        """Return the forward's outputs that the caller keeps alive: all but the new values of mutated inputs."""
        pairs = zip(self.forward_outputs, self.forward_specs, strict=True)
        return tuple(
            value
            for value, spec in pairs
            if isinstance(value, Node) and spec.kind is not OutputKind.MUTATED_INPUT
        )

    @cached_property
    def storages(self) -> StorageTable:
        """Return the storages of every node, with symbols at their hints and default options."""
        return storages(self, PartitionOptions())


def alias_root(node: Node) -> Node:
    """Return the node whose storage ``node`` shares, through any number of views."""
    while is_view(node):
        base = node.args[0]
        if not isinstance(base, Node):
            break
        node = base
    return node


def storages(facts: JointRecord, options: PartitionOptions) -> StorageTable:
    """Return the storages of every node of a joint graph.

    Inputs and constants have size 0, because they are in memory whatever the partition saves.
    """
    table = StorageTable(SizeModel(facts.graph, options))
    for node in facts.nodes[:-1]:
        table.add(node)
    for node in facts.nodes[:-1]:
        is_primal = node in facts.input_specs and node not in facts.tangents
        for storage in table.allocated[node] if is_primal or node.op == "get_attr" else ():
            table.sizes[storage] = 0
    return table
