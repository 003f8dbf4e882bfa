"""What a training step has in memory, operator by operator: forward, then backward.

The model: an operator allocates its results and nothing else; a value is freed after the last operator that reads
it or a view of it. Inputs of the step (parameters, buffers, batches) are not counted: they are there anyway.
What leaves the forward (outputs, saved values) lives on; outputs live to the end, as a caller holds them; new values
of updated inputs end with the forward; saved values and tangents end with their last use; gradients live to the end.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from torch.fx import Node

from fxstack_interchange import InputKind, OutputKind
from fxstack_partition.cost import SizeModel
from fxstack_partition.options import PartitionOptions
from fxstack_partition.storage import StorageTable

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from fxstack_interchange import Partition, StageGraph

_DEFAULTS = PartitionOptions()


def alive_bytes(
    steps: Iterable[tuple[Sequence[int], Sequence[int]]],
    sizes: Sequence[int],
    held: Iterable[int],
    kept: Iterable[int],
) -> list[int]:
    """Return the bytes that are alive while each step runs.

    A step is (storages it makes, storages it reads). ``held`` are alive before the first step; of all storages
    those that are not ``kept`` end with the last step that makes or reads them.
    """
    program = list(steps)
    last: dict[int, int] = {}
    for index, (made, reads) in enumerate(program):
        for storage in made:
            last[storage] = index
        for storage in reads:
            last[storage] = index
    for storage in kept:
        last[storage] = len(program)
    ending: list[int] = [0] * (len(program) + 1)
    for storage, index in last.items():
        ending[index] += sizes[storage]
    held = set(held)
    current = sum(sizes[storage] for storage in held if storage in last)
    alive = []
    for index, (made, _) in enumerate(program):
        for storage in made:
            current += sizes[storage] if storage not in held else 0
        alive.append(current)
        current -= ending[index]
    return alive


@dataclass(frozen=True, slots=True)
class Moment:
    """One operator of the step and the bytes alive while it runs."""

    name: str
    stage: str
    bytes: int


@dataclass(frozen=True, slots=True)
class Timeline:
    """A simulated training step. ``saved_bytes`` is what the forward keeps for the backward beyond the inputs."""

    moments: tuple[Moment, ...]
    saved_bytes: int

    @property
    def peak(self) -> int:
        """Return the largest number of bytes alive at once, beyond the step's inputs."""
        return max((moment.bytes for moment in self.moments), default=0)

    @property
    def peak_at(self) -> str | None:
        """Return the first operator that runs at the peak."""
        return next((m.name for m in self.moments if m.bytes == self.peak), None)

    def peak_of(self, stage: str) -> int:
        """Return the peak of one stage: ``forward`` or ``backward``."""
        return max((m.bytes for m in self.moments if m.stage == stage), default=0)


def simulate(
    partition: Partition, options: PartitionOptions = _DEFAULTS, *, release: bool = True
) -> Timeline:
    """Run forward and backward of ``partition`` in the model above, with symbols at their hints.

    Without ``release`` the backward's arguments live until it returns, as they do when its caller holds them.
    """
    table = StorageTable(SizeModel(partition.forward, options))
    forward, backward = (_nodes(stage) for stage in (partition.forward, partition.backward))
    for node in forward[:-1]:
        table.add(node)
    inputs = {s for n in forward if n.op in _GIVEN for s in table.of[n]}
    for storage in inputs:
        table.sizes[storage] = 0
    outputs = _by_kind(partition.forward)
    saved = {s for node in outputs.get(OutputKind.SAVED, ()) for s in table.of[node]}
    results = {
        s
        for kind, nodes in outputs.items()
        if kind not in (OutputKind.SAVED, OutputKind.MUTATED_INPUT)
        for node in nodes
        for s in table.of[node]
    }
    leaving = {s for nodes in outputs.values() for node in nodes for s in table.of[node]}
    first = alive_bytes(_steps(table, forward), table.sizes, inputs, leaving)
    _receive(table, partition, backward)
    tangents = _tangents(table, partition.backward, backward)
    gradients = {s for node in backward[-1].all_input_nodes for s in table.of[node]}
    held = saved | results | tangents
    kept = results | gradients if release else held | gradients
    second = alive_bytes(_steps(table, backward), table.sizes, held, kept)
    moments = [*_moments(forward, "forward", first), *_moments(backward, "backward", second)]
    return Timeline(tuple(moments), sum(table.sizes[s] for s in saved - results))


_GIVEN = ("placeholder", "get_attr")


def _nodes(stage: StageGraph) -> tuple[Node, ...]:
    return tuple(stage.graph_module.graph.nodes)


def _by_kind(stage: StageGraph) -> dict[OutputKind, list[Node]]:
    found: dict[OutputKind, list[Node]] = {}
    values = _nodes(stage)[-1].args[0]
    for value, spec in zip(
        values if isinstance(values, tuple | list) else (), stage.signature.outputs, strict=True
    ):
        if isinstance(value, Node):
            found.setdefault(spec.kind, []).append(value)
    return found


def _receive(table: StorageTable, partition: Partition, backward: tuple[Node, ...]) -> None:
    """Add the backward's nodes; what it receives lies where the forward put it."""
    given = {
        spec.name: node
        for spec, node in zip(
            partition.forward.signature.outputs_of(OutputKind.SAVED),
            _by_kind(partition.forward).get(OutputKind.SAVED, ()),
            strict=True,
        )
    }
    placeholders = [node for node in backward if node.op == "placeholder"]
    for node, spec in zip(placeholders, partition.backward.signature.inputs, strict=True):
        source = given.get(spec.target) if spec.kind is InputKind.SAVED else None
        if source is not None:
            table.alias(node, table.of[source])
        else:
            table.add(node)
    for node in backward[:-1]:
        if node.op != "placeholder":
            table.add(node)
        if node.op == "get_attr":
            for storage in table.made[node]:
                table.sizes[storage] = 0


def _tangents(table: StorageTable, stage: StageGraph, nodes: tuple[Node, ...]) -> set[int]:
    placeholders = [node for node in nodes if node.op == "placeholder"]
    pairs = zip(placeholders, stage.signature.inputs, strict=True)
    return {s for node, spec in pairs if spec.kind is InputKind.TANGENT for s in table.of[node]}


def _steps(
    table: StorageTable, nodes: tuple[Node, ...]
) -> list[tuple[tuple[int, ...], tuple[int, ...]]]:
    return [(table.made[n], table.reads(n)) for n in nodes[:-1] if n.op not in _GIVEN]


def _moments(nodes: tuple[Node, ...], stage: str, alive: list[int]) -> list[Moment]:
    ran = [node for node in nodes[:-1] if node.op not in _GIVEN]
    return [Moment(n.name, stage, size) for n, size in zip(ran, alive, strict=True)]
