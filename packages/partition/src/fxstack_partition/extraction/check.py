"""Check that two graphs are a partition of a joint graph, by named rules.

``api.partition`` checks the results of partitioners that are not part of this package.
"""

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
    """A joint graph and two graphs that a partitioner returned for it. Each rule reads a ``Case``."""

    facts: JointFacts
    part: Partition

    def computed(self, stage: StageGraph) -> list[Node]:
        """Return the operator calls of ``stage``."""
        return [n for n in stage.graph_module.graph.nodes if n.op == "call_function"]

    def original(self, name: str) -> Node | None:
        """Return the joint graph's node with this name, or None."""
        return self.by_name.get(name)

    @cached_property
    def by_name(self) -> dict[str, Node]:
        """Return the joint graph's nodes by name."""
        return {node.name: node for node in self.facts.nodes}

    @cached_property
    def sources(self) -> dict[str, Node]:
        """Map the name of each saved input of the backward to the forward's node."""
        return saved_sources(self.part.forward, self.part.backward)

    def is_converted_back(self, node: Node) -> bool:
        """Whether a node of the backward converts back a value that the forward saved in a smaller dtype."""
        original = self.original(node.name)
        return original is not None and is_converted_back(node, original, self.sources)


def check_partition(joint: StageGraph, part: Partition) -> None:
    """Check that ``part`` computes the results of ``joint``, from the values that it claims to save.

    Raises:
        PartitionError: at the first broken rule. The message names the node and the rule.
    """
    case = Case(analyze(joint), part)
    for name, rule in RULES:
        for node, violation in rule(case):
            msg = f"{node!r} breaks rule {name!r}: {violation}"
            raise PartitionError(msg)


def _stages(case: Case) -> Iterator[tuple[str, str]]:
    """Check the stages of both graphs, and that signatures and graphs have equally many inputs and outputs."""
    pairs = ((case.part.forward, Stage.FORWARD), (case.part.backward, Stage.BACKWARD))
    for stage, expected in pairs:
        if stage.signature.stage is not expected:
            yield expected.value, f"is signed as a {stage.signature.stage.value} graph"
        placeholders = stage.graph_module.graph.find_nodes(op="placeholder")
        if len(placeholders) != len(stage.signature.inputs):
            described = len(stage.signature.inputs)
            yield expected.value, f"has {len(placeholders)} inputs, its signature describes {described}"
        outputs = _outputs(stage)
        if len(outputs) != len(stage.signature.outputs):
            described = len(stage.signature.outputs)
            yield expected.value, f"has {len(outputs)} outputs, its signature describes {described}"


def _outputs(stage: StageGraph) -> tuple[Any, ...]:
    values = stage.graph_module.graph.output_node().args[0]
    return tuple(values) if isinstance(values, tuple | list) else (values,)


def _results(case: Case) -> Iterator[tuple[str, str]]:
    """Check that the graphs return the joint graph's results, in order."""
    facts, part = case.facts, case.part
    forward = [s for s in part.forward.signature.outputs if s.kind is not OutputKind.SAVED]
    for stage, specs, expected in (
        ("forward", forward, facts.forward_specs),
        ("backward", part.backward.signature.outputs, facts.gradient_specs),
    ):
        if [s.kind for s in specs] != [s.kind for s in expected]:
            yield (stage, f"returns {len(specs)} results, the joint graph has {len(expected)} for this stage")
    for stage_graph, values in ((part.forward, facts.forward_outputs), (part.backward, facts.gradients)):
        for output, value in zip(_outputs(stage_graph), values, strict=False):
            yield from _same_value(case, output, value)


def _same_value(case: Case, output: object, value: object) -> Iterator[tuple[str, str]]:
    """Yield (node name, problem) if ``output`` of a part is not ``value``, the joint graph's output at the
    same position.
    """
    if isinstance(output, Node) != isinstance(value, Node):
        yield str(value), f"is returned as {output!r}"
    elif isinstance(output, Node) and isinstance(value, Node):
        original = case.original(output.name)
        if original is not None and output.op == "call_function" and original is not value:
            yield output.name, f"is returned in the place of {value.name!r}"


def _saved(case: Case) -> Iterator[tuple[str, str]]:
    """Check that the forward's saved values are the backward's saved inputs, and that all tangents arrive."""
    saved_names = [s.name for s in case.part.forward.signature.outputs_of(OutputKind.SAVED)]
    received = [s.target for s in case.part.backward.signature.inputs_of(InputKind.SAVED)]
    for name in received:
        if name not in saved_names:
            yield str(name), "is an input of the backward that the forward does not save"
    forward_names = {node.name for node in case.part.forward.graph_module.graph.nodes}
    for name in case.part.saved:
        if name not in forward_names and name not in case.by_name:
            yield name, "is in Partition.saved, but is no value of the forward"
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
    """Check that the forward saves a copy of each value whose memory changes before the backward."""
    names = {node.name for node in copied_values(case.facts)}
    updated = {node for node in case.part.forward.graph_module.graph.nodes if node.name in names}
    specs = case.part.forward.signature.outputs
    pairs = zip(_outputs(case.part.forward), specs, strict=True)
    saved = [value for value, spec in pairs if spec.kind is OutputKind.SAVED]
    for node in find_views_of(updated, saved):
        yield (node.name, "is saved without a copy, but its memory changes before the backward: save a copy")


def find_views_of(inputs: set[Node], values: Sequence[object]) -> Iterator[Node]:
    """Yield each value that is in ``inputs``, or is a view of a node in ``inputs``."""
    for value in values:
        base = value
        while isinstance(base, Node) and is_view(base):
            base = base.args[0]
        if isinstance(value, Node) and base in inputs:
            yield value


def _topology(case: Case) -> Iterator[tuple[str, str]]:
    """Check that each node is the joint graph's node of the same name, with equal arguments."""
    same = _equal_values(case.facts)
    for stage in (case.part.forward, case.part.backward):
        renamed = _names_in_joint(case, stage)
        for node in case.computed(stage):
            original = case.original(node.name)
            if (original is None and is_added_by_cut(node)) or case.is_converted_back(node):
                continue
            call = computation(node)
            if original is None or original.target != call.target:
                yield node.name, "is not a computation of the joint graph"
                continue
            reads = [renamed.get(arg.name, arg.name) for arg in call.reads]
            expected_reads = [arg.name for arg in original.all_input_nodes]
            if _representatives(reads, same) != _representatives(expected_reads, same):
                yield node.name, f"reads {', '.join(reads)} instead of {', '.join(expected_reads)}"
            identity_of = {n.name: same.get(r, r) for n, r in zip(call.reads, reads, strict=True)}
            called = structural_key((call.args, call.kwargs), lambda arg: identity_of[arg.name])  # noqa: B023
            if called != structural_key((original.args, original.kwargs), lambda arg: same[arg.name]):
                actual, expected = (", ".join(map(str, n.args)) for n in (call, original))
                yield node.name, f"is called with ({actual}) instead of ({expected})"


def _representatives(names: list[str], same: dict[str, str]) -> list[str]:
    return list(dict.fromkeys(same.get(name, name) for name in names))


def _equal_values(facts: JointFacts) -> dict[str, str]:
    """Map each node's name to the first node with the same target and arguments.

    A partition may use either of two equal nodes, because partitioners merge repeated nodes.
    """
    first: dict[object, str] = {}
    same: dict[str, str] = {}
    for node in facts.nodes[:-1]:
        same[node.name] = node.name
        # Two draws or effects are different, even with equal arguments.
        if node.op == "call_function" and facts.kinds[node] not in NEVER_TWICE:
            key = (node.target, structural_key((node.args, node.kwargs), lambda arg: same[arg.name]))
            same[node.name] = first.setdefault(key, node.name)
    return same


def _names_in_joint(case: Case, stage: StageGraph) -> dict[str, str]:
    """Map the names of a stage's inputs to names in the joint graph, by position."""
    primals = stage if stage.signature.stage is Stage.FORWARD else case.part.forward
    placeholders = primals.graph_module.graph.find_nodes(op="placeholder")
    names = {n.name: original.name for n, original in zip(placeholders, case.facts.primals, strict=False)}
    if stage.signature.stage is Stage.BACKWARD:
        inputs = stage.graph_module.graph.find_nodes(op="placeholder")
        specs = list(zip(inputs, stage.signature.inputs, strict=True))
        tangents = [n for n, spec in specs if is_backward_input(spec)]
        names |= {n.name: t.name for n, t in zip(tangents, case.facts.tangents, strict=False)}
        names |= _through_copies(case, specs, names)
    return names


def _through_copies(case: Case, specs: list[Any], names: dict[str, str]) -> dict[str, str]:
    """Map the name of each saved input of the backward to the name of the joint graph's node.

    A copy maps to its original.
    """
    forward_nodes = {n.name: n for n in case.part.forward.graph_module.graph.nodes}
    renamed = {}
    for node, spec in specs:
        source = forward_nodes.get(spec.target) if spec.kind is InputKind.SAVED else None
        if source is not None and source.target is torch.ops.aten.clone.default:
            if case.original(source.name) is None:
                base = source.all_input_nodes[0].name
                renamed[node.name] = names.get(base, base)
        elif source is not None and source.op == "call_function":
            renamed[node.name] = source.name
    return renamed


def _direction(case: Case) -> Iterator[tuple[str, str]]:
    """Check that the forward runs no node that depends on a tangent."""
    backward = {node.name for node in case.facts.backward}
    for node in case.computed(case.part.forward):
        if node.name in backward:
            yield node.name, "depends on a tangent, so it must not be in the forward"


def _never_twice(case: Case) -> Iterator[tuple[str, str]]:
    """Check that no random draw or effect runs in both graphs, except replayed draws."""
    kinds = {node.name: kind for node, kind in case.facts.kinds.items()}
    forward_names = {node.name for node in case.computed(case.part.forward)}
    for node in case.computed(case.part.backward):
        kind = kinds.get(node.name, OpKind.OTHER)
        replayed = kind is OpKind.RANDOM and replays_saved_state(node, case.sources)
        if (
            node.name in forward_names
            and kind in NEVER_TWICE
            and not (replayed or case.is_converted_back(node))
        ):
            yield node.name, f"({kind.value}) runs in the forward and in the backward, but must not run twice"


def _tags(case: Case) -> Iterator[tuple[str, str]]:
    """Check that the graphs respect ``must_save`` and ``must_recompute`` tags."""
    tags = {n.name: tag_of(n) for n in case.facts.nodes if n not in case.facts.backward}
    recomputed = {n.name for n in case.computed(case.part.backward) if not case.is_converted_back(n)}
    forward_names = {n.name for n in case.computed(case.part.forward)}
    # A view is recomputed from its saved base, whatever its tag.
    views = {n.name for n, kind in case.facts.kinds.items() if kind is OpKind.VIEW}
    for name in sorted(recomputed & forward_names - views):
        if tags.get(name) == "must_save":
            yield name, "is tagged must_save, but the backward recomputes it"
    # Inputs and nodes that must not run twice are saved, whatever their tag.
    always_saved = {n.name for n, kind in case.facts.kinds.items() if kind in (*NEVER_TWICE, OpKind.INPUT)}
    for spec in case.part.forward.signature.outputs_of(OutputKind.SAVED):
        if tags.get(str(spec.name)) == "must_recompute" and spec.name not in always_saved:
            yield str(spec.name), "is tagged must_recompute, but the forward saves it"


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
"""The rules by name, in the order of checking: later rules rely on earlier rules."""
