"""Facts about a joint graph that every partitioner needs, computed once.

The main question is which nodes depend on a tangent: these belong to the backward, whatever is saved. Of the
other nodes, the forward's outputs need some, and only the backward needs the rest.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

from torch.fx import Node

from fxstack_interchange import InputKind, InputSpec, OutputKind, OutputSpec, Stage, StageGraph
from fxstack_interchange.format.show import short_repr
from fxstack_partition.joint.index_graph import IndexGraph
from fxstack_partition.joint.ops import OpKind, base_name, kind_of, written_arguments
from fxstack_partition.joint.record import JointRecord, alias_root
from fxstack_partition.options import PartitionOptions


class JointGraphError(ValueError):
    """The graph is not a joint graph. The message names the broken rule."""


@dataclass(frozen=True, repr=False)
class JointFacts(JointRecord):
    """A joint graph with its ``IndexGraph``, computed at the first read."""

    __repr__ = short_repr

    @cached_property
    def index_graph(self) -> IndexGraph:
        """Return the graph as lists of integers, with symbols at their hints and default options."""
        return IndexGraph(self, PartitionOptions())


def analyze(joint: StageGraph) -> JointFacts:
    """Find the sides, the inputs and the outputs of ``joint``'s nodes. Every partitioner calls this first.

    Raises:
        JointGraphError: if the stage is wrong, or signature and graph differ.
    """
    if joint.signature.stage is not Stage.JOINT:
        msg = f"expected a joint graph, got a {joint.signature.stage.value} graph"
        raise JointGraphError(msg)
    nodes = tuple(joint.graph_module.graph.nodes)
    placeholders = tuple(node for node in nodes if node.op == "placeholder")
    outputs = _outputs(nodes[-1])
    specs = joint.signature.inputs
    _match("placeholders", len(placeholders), len(specs))
    _match("outputs", len(outputs), len(joint.signature.outputs))
    input_specs = dict(zip(placeholders, specs, strict=True))
    tangents = tuple(n for n in placeholders if is_backward_input(input_specs[n]))
    pairs = tuple(zip(outputs, joint.signature.outputs, strict=True))
    forward = tuple(pair for pair in pairs if pair[1].kind is not OutputKind.GRADIENT)
    gradients = tuple(pair for pair in pairs if pair[1].kind is OutputKind.GRADIENT)
    position = {node: index for index, node in enumerate(nodes)}
    kinds = {node: kind_of(node) for node in nodes[:-1]}
    reads = {node: tuple(node.all_input_nodes) for node in nodes}
    unsaved = {alias_root(node) for node in nodes if node.name in joint.signature.unsaved}
    in_backward = _backward_nodes(reads, tangents, kinds)
    in_forward = _forward_nodes(reads, [value for value, _ in forward], kinds, in_backward)
    return JointFacts(
        graph=joint,
        nodes=nodes,
        position=position,
        inputs=reads,
        kinds=kinds,
        primals=tuple(n for n in placeholders if n not in set(tangents)),
        tangents=tangents,
        forward_outputs=tuple(value for value, _ in forward),
        gradients=tuple(value for value, _ in gradients),
        forward_specs=tuple(spec for _, spec in forward),
        gradient_specs=tuple(spec for _, spec in gradients),
        input_specs=input_specs,
        backward=in_backward,
        forward=in_forward,
        copied=_mutated_inputs(input_specs, nodes, forward, kinds, in_backward) | unsaved,
    )


BACKWARD_STATE = "backward"
"""``InputSpec.target`` of a random state that the backward receives when it runs."""


def is_backward_input(spec: InputSpec) -> bool:
    """Whether only the backward receives the input: a tangent, or the backward's own random state."""
    is_state = spec.kind is InputKind.RNG_STATE and spec.target == BACKWARD_STATE
    return is_state or spec.kind is InputKind.TANGENT


def _outputs(node: Node) -> tuple[object, ...]:
    """Return the values that a joint graph returns. Raise JointGraphError if they are not one flat tuple."""
    if node.op != "output" or not isinstance(node.args[0], tuple | list):
        msg = "a joint graph ends in an output node that holds one flat tuple"
        raise JointGraphError(msg)
    return tuple(node.args[0])


def _match(noun: str, count: int, declared: int) -> None:
    """Raise JointGraphError unless the graph has as many placeholders or outputs as its signature.

    ``noun``: for the message, for example ``placeholders``.
    """
    if count != declared:
        msg = f"the graph has {count} {noun}, its signature describes {declared}"
        raise JointGraphError(msg)


_NOT_COMPUTED = ("placeholder", "get_attr")


def _backward_nodes(
    reads: dict[Node, tuple[Node, ...]], tangents: tuple[Node, ...], kinds: dict[Node, OpKind]
) -> frozenset[Node]:
    """Return the nodes that depend on a tangent, or have effects after the first node that depends on a tangent."""
    backward: set[Node] = set(tangents)
    started = False
    effects = (OpKind.RANDOM, OpKind.EFFECT)
    for node, kind in kinds.items():
        if node.op in _NOT_COMPUTED:
            continue
        depends = not backward.isdisjoint(reads[node])
        started = started or depends
        # The joint trace runs the forward first, so a node that draws random numbers or has effects after the
        # backward has begun belongs to the backward. Trailing updates of forward inputs are the exception.
        if depends or (started and kind in effects and not _is_input_update(node)):
            backward.add(node)
    return frozenset(backward)


def _is_input_update(node: Node) -> bool:
    """Whether a node copies a new value into an input of the graph. Such a node runs at the end of the forward."""
    destination = node.args[0] if node.args else None
    is_input = isinstance(destination, Node) and destination.op == "placeholder"
    return is_input and base_name(node.target) == "copy_"


def _forward_nodes(
    reads: dict[Node, tuple[Node, ...]],
    outputs: list[object],
    kinds: dict[Node, OpKind],
    backward: frozenset[Node],
) -> frozenset[Node]:
    """Return the nodes that the forward's outputs and effects need."""
    needed = {value for value in outputs if isinstance(value, Node)}
    for value in needed & backward:
        msg = f"forward output {value.name!r} depends on a tangent"
        raise JointGraphError(msg)
    effects = (OpKind.RANDOM, OpKind.EFFECT)
    for node in reversed(kinds):
        if node not in backward and (node in needed or kinds[node] in effects):
            needed.add(node)
            needed.update(reads[node])
    return frozenset(needed)


def _mutated_inputs(
    input_specs: dict[Node, InputSpec],
    nodes: tuple[Node, ...],
    forward: tuple[tuple[object, OutputSpec], ...],
    kinds: dict[Node, OpKind],
    backward: frozenset[Node],
) -> frozenset[Node]:
    """Return the inputs that change before the backward: the forward or its caller updates them in place."""
    targets = {s.target for _, s in forward if s.kind is OutputKind.MUTATED_INPUT}
    mutated = {
        node
        for node, spec in input_specs.items()
        if spec.name in targets or (spec.target is not None and spec.target in targets)
    }
    for node in nodes[:-1]:
        if kinds[node] is OpKind.EFFECT and node not in backward:
            mutated.update(written_arguments(node))
    return frozenset(mutated)
