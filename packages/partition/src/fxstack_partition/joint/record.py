"""The record of a joint graph, dissected into forward, backward, inputs and outputs."""

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
class DissectedGraph:
    """A dissected joint graph. All tuples are in graph order, so that nothing depends on hashing.

    ``backward``: nodes that must be in the backward, because they depend on a tangent, or draw random numbers
    after the backward has begun. ``forward``: nodes that must be in the forward. ``inputs``: the nodes that
    each node reads. ``kinds`` has an entry for every node except the output. ``copied``: inputs and
    outputs that the forward, its caller or the program may update before the backward, which gets copies.
    """

    graph: StageGraph
    nodes: tuple[Node, ...]
    position: dict[Node, int]
    inputs: dict[Node, tuple[Node, ...]]
    kinds: dict[Node, OpKind]
    primals: tuple[Node, ...]
    tangents: tuple[Node, ...]
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
        """Return the forward's outputs that the caller keeps: all but new values of mutated inputs."""
        pairs = zip(self.forward_outputs, self.forward_specs, strict=True)
        return tuple(
            value
            for value, spec in pairs
            if isinstance(value, Node) and spec.kind is not OutputKind.MUTATED_INPUT
        )

    @cached_property
    def storages(self) -> StorageTable:
        """Return the memory of every node, with symbols at their hints. The step's inputs have size 0."""
        return storages(self, PartitionOptions())


def alias_root(node: Node) -> Node:
    """Return the node whose storage ``node`` shares, through any number of views."""
    while is_view(node):
        base = node.args[0]
        if not isinstance(base, Node):
            break
        node = base
    return node


def storages(facts: DissectedGraph, options: PartitionOptions) -> StorageTable:
    """Return the memory of every node of a joint graph. The step's inputs have size 0."""
    table = StorageTable(SizeModel(facts.graph, options))
    for node in facts.nodes[:-1]:
        table.add(node)
    for node in facts.nodes[:-1]:
        given = node in facts.input_specs and node not in facts.tangents
        for storage in table.made[node] if given or node.op == "get_attr" else ():
            table.sizes[storage] = 0
    return table
