"""Check that two graphs are a partition of a joint graph: named rules for partitioners from outside."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import torch
from torch.fx import Node

from fxstack_interchange import InputKind, OutputKind, Partition, Stage, StageGraph
from fxstack_partition.extraction.merge import structural_key
from fxstack_partition.extraction.original_computation import (
    computation,
    is_added_by_cut,
    is_converted_back,
    replays_saved_state,
    saved_sources,
)
from fxstack_partition.joint.index_graph import copied_values
from fxstack_partition.joint.joint import JointFacts, analyze, is_backward_input
from fxstack_partition.joint.ops import NEVER_TWICE, OpKind, is_view
from fxstack_partition.ordering.plan import PartitionError
from fxstack_partition.policy.policy import tag_of


@dataclass(frozen=True)
class Case:
    """A joint graph and a claimed partition of it."""

    facts: JointFacts
    part: Partition

    def ran(self, stage: StageGraph) -> list[Node]:
        """Return the nodes that a stage computes."""
        return [n for n in stage.graph_module.graph.nodes if n.op == "call_function"]

    def original(self, name: str) -> Node | None:
        """Return the joint graph's node of this name."""
        return self.by_name.get(name)

    @cached_property
    def by_name(self) -> dict[str, Node]:
        """Return the joint graph's nodes by name."""
        return {node.name: node for node in self.facts.nodes}

    @cached_property
    def sources(self) -> dict[str, Node]:
        """Return the forward's saved nodes, by the names of the backward's inputs."""
        return saved_sources(self.part.forward, self.part.backward)

    def is_converted_back(self, node: Node) -> bool:
        """Whether a node of the backward converts back a value that the forward saved in a smaller dtype."""
        original = self.original(node.name)
        return original is not None and is_converted_back(node, original, self.sources)


def check_partition(joint: StageGraph, part: Partition) -> None:
    """Check that ``part`` computes the results of ``joint``, from the values that it claims to save.

    Raises:
        PartitionError: if it does not. The message names the node and the rule.
    """
    case = Case(analyze(joint), part)
    for name, rule in RULES:
        for node, what in rule(case):
            msg = f"{node!r} breaks rule {name!r}: {what}"
            raise PartitionError(msg)


def _stages(case: Case) -> Iterator[tuple[str, str]]:
    pairs = ((case.part.forward, Stage.FORWARD), (case.part.backward, Stage.BACKWARD))
    for stage, wanted in pairs:
        if stage.signature.stage is not wanted:
            yield wanted.value, f"is signed as a {stage.signature.stage.value} graph"
        given = stage.graph_module.graph.find_nodes(op="placeholder")
        if len(given) != len(stage.signature.inputs):
            described = len(stage.signature.inputs)
            yield wanted.value, f"has {len(given)} inputs, its signature describes {described}"
        made = _outputs(stage)
        if len(made) != len(stage.signature.outputs):
            described = len(stage.signature.outputs)
            yield wanted.value, f"has {len(made)} outputs, its signature describes {described}"


def _outputs(stage: StageGraph) -> tuple[Any, ...]:
    values = stage.graph_module.graph.output_node().args[0]
    return tuple(values) if isinstance(values, tuple | list) else (values,)


def _results(case: Case) -> Iterator[tuple[str, str]]:
    facts, part = case.facts, case.part
    forward = [s for s in part.forward.signature.outputs if s.kind is not OutputKind.SAVED]
    for stage, specs, wanted in (
        ("forward", forward, facts.forward_specs),
        ("backward", part.backward.signature.outputs, facts.gradient_specs),
    ):
        if [s.kind for s in specs] != [s.kind for s in wanted]:
            yield (stage, f"returns {len(specs)} results, the joint graph {len(wanted)} of that stage")
    for stage_graph, values in ((part.forward, facts.forward_outputs), (part.backward, facts.gradients)):
        for made, value in zip(_outputs(stage_graph), values, strict=False):
            yield from _same_value(case, made, value)


def _same_value(case: Case, made: object, value: object) -> Iterator[tuple[str, str]]:
    if isinstance(made, Node) != isinstance(value, Node):
        yield str(value), f"is returned as {made!r}"
    elif isinstance(made, Node) and isinstance(value, Node):
        known = case.original(made.name)
        if known is not None and made.op == "call_function" and known is not value:
            yield made.name, f"is returned in the place of {value.name!r}"


def _saved(case: Case) -> Iterator[tuple[str, str]]:
    """The forward's saved values are the backward's saved inputs."""
    given = [s.name for s in case.part.forward.signature.outputs_of(OutputKind.SAVED)]
    received = [s.target for s in case.part.backward.signature.inputs_of(InputKind.SAVED)]
    for name in received:
        if name not in given:
            yield str(name), "is received by the backward and not handed over by the forward"
    made = {node.name for node in case.part.forward.graph_module.graph.nodes}
    for name in case.part.saved:
        if name not in made and name not in case.by_name:
            yield name, "is named as saved and is no value of the forward"
    if len(case.part.saved) != len(received):
        yield (
            "backward",
            f"receives {len(received)} saved values, of which {len(case.part.saved)} are named",
        )
    for spec in case.part.backward.signature.inputs:
        if spec.kind is not InputKind.SAVED and not is_backward_input(spec):
            yield (spec.name, f"is a {spec.kind.value} input: a backward has saved values and tangents")
    late = [spec for spec in case.part.backward.signature.inputs if is_backward_input(spec)]
    if len(late) != len(case.facts.tangents):
        yield "backward", f"must receive all {len(case.facts.tangents)} tangents"


def _updated(case: Case) -> Iterator[tuple[str, str]]:
    """A saved value that lies in memory that changes before the backward is saved as a copy."""
    names = {node.name for node in copied_values(case.facts)}
    updated = {node for node in case.part.forward.graph_module.graph.nodes if node.name in names}
    specs = case.part.forward.signature.outputs
    pairs = zip(_outputs(case.part.forward), specs, strict=True)
    saved = [value for value, spec in pairs if spec.kind is OutputKind.SAVED]
    for node in find_views_of(updated, saved):
        yield (node.name, "is saved as it is, but its memory changes before the backward: save a copy")


def find_views_of(inputs: set[Node], values: Sequence[object]) -> Iterator[Node]:
    """Yield the ``values`` that are one of ``inputs`` or a view of one."""
    for value in values:
        base = value
        while isinstance(base, Node) and is_view(base):
            base = base.args[0]
        if isinstance(value, Node) and base in inputs:
            yield value


def _topology(case: Case) -> Iterator[tuple[str, str]]:
    """Every node is a node of the joint graph with the same arguments, or an equal node."""
    same = _equal_values(case.facts)
    for stage in (case.part.forward, case.part.backward):
        renamed = _names_in_joint(case, stage)
        for node in case.ran(stage):
            original = case.original(node.name)
            if (original is None and is_added_by_cut(node)) or case.is_converted_back(node):
                continue
            done = computation(node)
            if original is None or original.target != done.target:
                yield node.name, "is not a computation of the joint graph"
                continue
            reads = [renamed.get(arg.name, arg.name) for arg in done.reads]
            wanted = [arg.name for arg in original.all_input_nodes]
            if _representatives(reads, same) != _representatives(wanted, same):
                yield node.name, f"reads {', '.join(reads)} instead of {', '.join(wanted)}"
            meant = {n.name: same.get(r, r) for n, r in zip(done.reads, reads, strict=True)}
            called = structural_key((done.args, done.kwargs), lambda arg: meant[arg.name])  # noqa: B023
            if called != structural_key((original.args, original.kwargs), lambda arg: same[arg.name]):
                actual, expected = (", ".join(map(str, n.args)) for n in (done, original))
                yield node.name, f"is called with ({actual}) instead of ({expected})"


def _representatives(names: list[str], same: dict[str, str]) -> list[str]:
    return list(dict.fromkeys(same.get(name, name) for name in names))


def _equal_values(facts: JointFacts) -> dict[str, str]:
    """Map each node to the first with the same target and arguments, so that merged nodes are no error."""
    first: dict[object, str] = {}
    same: dict[str, str] = {}
    for node in facts.nodes[:-1]:
        same[node.name] = node.name
        if node.op == "call_function" and facts.kinds[node] not in NEVER_TWICE:
            key = (node.target, structural_key((node.args, node.kwargs), lambda arg: same[arg.name]))
            same[node.name] = first.setdefault(key, node.name)
    return same


def _names_in_joint(case: Case, stage: StageGraph) -> dict[str, str]:
    """Map names of a stage's inputs to names in the joint graph, by position."""
    primals = stage if stage.signature.stage is Stage.FORWARD else case.part.forward
    placeholders = primals.graph_module.graph.find_nodes(op="placeholder")
    names = {n.name: original.name for n, original in zip(placeholders, case.facts.primals, strict=False)}
    if stage.signature.stage is Stage.BACKWARD:
        given = stage.graph_module.graph.find_nodes(op="placeholder")
        specs = list(zip(given, stage.signature.inputs, strict=True))
        tangents = [n for n, spec in specs if is_backward_input(spec)]
        names |= {n.name: t.name for n, t in zip(tangents, case.facts.tangents, strict=False)}
        names |= _through_copies(case, specs, names)
    return names


def _through_copies(case: Case, specs: list[Any], names: dict[str, str]) -> dict[str, str]:
    """Map a saved copy of an updated input to this input."""
    made = {n.name: n for n in case.part.forward.graph_module.graph.nodes}
    found = {}
    for node, spec in specs:
        source = made.get(spec.target) if spec.kind is InputKind.SAVED else None
        if source is not None and source.target is torch.ops.aten.clone.default:
            if case.original(source.name) is None:
                base = source.all_input_nodes[0].name
                found[node.name] = names.get(base, base)
        elif source is not None and source.op == "call_function":
            found[node.name] = source.name
    return found


def _direction(case: Case) -> Iterator[tuple[str, str]]:
    backward = {node.name for node in case.facts.backward}
    for node in case.ran(case.part.forward):
        if node.name in backward:
            yield node.name, "depends on a tangent and is in the forward"


def _never_twice(case: Case) -> Iterator[tuple[str, str]]:
    kinds = {node.name: kind for node, kind in case.facts.kinds.items()}
    first = {node.name for node in case.ran(case.part.forward)}
    for node in case.ran(case.part.backward):
        kind = kinds.get(node.name, OpKind.OTHER)
        drawn = kind is OpKind.RANDOM and replays_saved_state(node, case.sources)
        if node.name in first and kind in NEVER_TWICE and not (drawn or case.is_converted_back(node)):
            yield node.name, f"({kind.value}) runs in the forward and again in the backward"


def _tags(case: Case) -> Iterator[tuple[str, str]]:
    tags = {n.name: tag_of(n) for n in case.facts.nodes if n not in case.facts.backward}
    again = {n.name for n in case.ran(case.part.backward) if not case.is_converted_back(n)}
    first = {n.name for n in case.ran(case.part.forward)}
    views = {n.name for n, kind in case.facts.kinds.items() if kind is OpKind.VIEW}
    for name in sorted(again & first - views):
        if tags.get(name) == "must_save":
            yield name, "is tagged must_save and is computed again"
    never = {n.name for n, kind in case.facts.kinds.items() if kind in (*NEVER_TWICE, OpKind.INPUT)}
    for spec in case.part.forward.signature.outputs_of(OutputKind.SAVED):
        if tags.get(str(spec.name)) == "must_recompute" and spec.name not in never:
            yield str(spec.name), "is tagged must_recompute and is saved"


RULES: tuple[tuple[str, Callable[[Case], Iterator[tuple[str, str]]]], ...] = (
    ("stages", _stages),
    ("saved", _saved),
    ("direction", _direction),
    ("updated", _updated),
    ("topology", _topology),
    ("results", _results),
    ("never-twice", _never_twice),
    ("tags", _tags),
)
"""Every rule by name, in the order of checking."""
