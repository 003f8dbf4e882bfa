"""Finish a trace: new values copied into inputs, dead code, metadata, signature."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import torch
from torch.fx import GraphModule, Node

from fxstack_functionalize import torch_compat
from fxstack_functionalize.metadata.records import GraphInfo
from fxstack_functionalize.metadata.replay import AliasSource
from fxstack_functionalize.tracer.aten_tracer import KEPT_METADATA, add_call
from fxstack_functionalize.tracer.symbols import symbol_specs
from fxstack_functionalize.tracing.session import Session
from fxstack_interchange import (
    GraphSignature,
    InputKind,
    InputSpec,
    OutputKind,
    OutputSpec,
    Stage,
    StageGraph,
)
from fxstack_interchange.modules import make_graph_module
from fxstack_interchange.torch_facts.effects import draws, is_ordered, must_run


@dataclass(frozen=True, slots=True)
class FlatSlot:
    """One flat output of the forward: its traced value, its node, and its tangent's node."""

    value: Any
    mutated_input: int | None = None
    """The number of the input whose new value this is; None for another output."""
    node: Any = None
    tangent: Node | None = None
    alias: tuple[AliasSource, int] | None = None
    """For a user output that the caller makes: the input or flat output whose memory it shares."""


@dataclass(frozen=True, slots=True)
class GradientSlot:
    """The gradient of input ``index``. ``node`` is None if the input gets no gradient."""

    index: int
    node: Node | None


def with_signature(
    session: Session, stage: Stage, slots: Sequence[FlatSlot], gradients: Sequence[GradientSlot]
) -> StageGraph:
    """Return the session's graph, which is complete, with its signature."""
    graph = session.tracer.graph
    for node in graph.nodes:
        for key in node.meta.keys() - KEPT_METADATA:
            del node.meta[key]
        if isinstance(node.target, torch_compat.OpOverload) and not node.target._schema.returns:
            node.meta.setdefault("val", None)
    module = make_graph_module(session.tracer.root, graph, deferred=True)
    signature = GraphSignature(
        stage,
        inputs=_input_specs(session, slots),
        outputs=_output_specs(session, slots, gradients),
        symbols=symbol_specs(session.captured),
    )
    return StageGraph(module, signature)


def _input_specs(session: Session, slots: Sequence[FlatSlot]) -> tuple[InputSpec, ...]:
    """Return the signature's inputs: those of the captured graph, then the tangents of a joint graph."""
    specs = []
    for spec, traced in zip(session.captured.inputs, session.inputs, strict=True):
        name = traced.node.name if traced.node is not None else spec.name
        target = spec.target
        if spec.kind is InputKind.SYMBOL:
            target = str(spec.fake.node.expr)
        specs.append(InputSpec(spec.kind, name, target))
    specs += [
        InputSpec(InputKind.TANGENT, slot.tangent.name, _name(slot.node))
        for slot in slots
        if slot.tangent is not None
    ]
    return tuple(specs)


def _output_specs(
    session: Session, slots: Sequence[FlatSlot], gradients: Sequence[GradientSlot]
) -> tuple[OutputSpec, ...]:
    """Return the signature's outputs: the flat outputs, then the gradients of a joint graph."""

    def name_of(index: int) -> str | None:
        return _name(session.inputs[index].node)

    def spec_of(slot: FlatSlot) -> OutputSpec:
        """Return the specification of one flat output. It names the input or output that the value belongs to."""
        name = _name(slot.node)
        if slot.mutated_input is not None:
            return OutputSpec(OutputKind.MUTATED_INPUT, name, name_of(slot.mutated_input))
        if slot.alias is None:
            return OutputSpec(OutputKind.USER_OUTPUT, name)
        source, index = slot.alias
        if source is AliasSource.INPUT:
            return OutputSpec(OutputKind.ALIAS_OF_INPUT, name, name_of(index))
        return OutputSpec(OutputKind.ALIAS_OF_INTERMEDIATE, name, _name(slots[index].node))

    forward = [spec_of(slot) for slot in slots]
    backward = [OutputSpec(OutputKind.GRADIENT, _name(grad.node), name_of(grad.index)) for grad in gradients]
    return (*forward, *backward)


def _name(node: object) -> str | None:
    return node.name if isinstance(node, Node) else None


def remove_dead_code(
    graph: torch.fx.Graph, rerun: Collection[Node] = (), *, root: torch.nn.Module | None = None
) -> bool:
    """Remove unused nodes, except nodes that may have an effect, raise an error or draw random numbers.

    Return whether there were any. ``rerun``: nodes that a forward has run with the same values, so that they cannot raise.
    ``root``: the module with the nested graphs of ``graph``.
    """
    # torch's ``eliminate_dead_code`` removes operators in nested graphs whose functions draw random numbers.
    root = root if root is not None else graph.owning_module
    changed = False
    for node in reversed(graph.nodes):
        if not node.users and not has_effect(node) and (node in rerun or not must_run(node, root)):
            graph.erase_node(node)
            changed = True
    paths = dict.fromkeys(str(node.target) for node in graph.find_nodes(op="get_attr"))
    for module in (getattr(root, path, None) for path in paths):
        if isinstance(module, GraphModule) and remove_dead_code(module.graph, root=module):
            module.recompile()
            changed = True
    return changed


def with_graph(
    stage: StageGraph, graph: torch.fx.Graph, inputs: Sequence[InputSpec], copies: Mapping[Node, Node]
) -> StageGraph:
    """Return ``stage`` with another graph and its ``inputs``. Names of outputs follow ``copies`` of nodes."""
    names = {old.name: new.name for old, new in copies.items()}
    outputs = tuple(replace(spec, name=names.get(str(spec.name))) for spec in stage.signature.outputs)
    signature = replace(stage.signature, inputs=tuple(inputs), outputs=outputs)
    return StageGraph(make_graph_module(stage.graph_module, graph, deferred=True), signature)


def has_effect(node: Node) -> bool:
    """Whether a node has an effect, checks something or draws random numbers. True for inputs and outputs."""
    if node.op in {"placeholder", "output"}:
        return True
    target = node.target
    if isinstance(target, torch_compat.OpOverload):
        tags = target.tags
        return (
            target._schema.is_mutable
            or not target._schema.returns
            or torch.Tag.nondeterministic_seeded in tags
            or is_ordered(target)
            or node.is_impure()
        )
    return draws(node) or bool(node.is_impure())


def copy_back_in_graph(
    session: Session, slots: Sequence[FlatSlot], info: GraphInfo
) -> tuple[list[FlatSlot], GraphInfo]:
    """Append ``aten.copy_(input, value)`` for every mutated input, and drop these values from the outputs.

    A compiler may then write the new value in place: no returned value is read after the copies.
    """
    remaining = [slot for slot in slots if slot.mutated_input is None]
    graph = session.tracer.graph
    changed = [slot for slot in slots if slot.mutated_input is not None]
    targets = [session.inputs[info.mutated[number]].node for number in range(len(changed))]
    memory = {_memory(target) for target in targets}
    values = [slot.node for slot in changed]
    for number, value in enumerate(values):
        if _memory(value) in memory:  # a view of a mutated input is read before any input is written
            values[number] = graph.call_function(torch.ops.aten.clone.default, (value,))
            values[number].meta["val"] = value.meta["val"]
    for target, value in zip(targets, values, strict=True):
        assert target is not None
        node = add_call(graph, torch.ops.aten.copy_.default, (target, value), {}, "copy__default")
        node.meta["val"] = target.meta["val"]
    dropped = len(slots) - len(remaining)
    remaining = [replace(slot, alias=_shifted(slot.alias, dropped)) for slot in remaining]
    info = replace(
        info, mutated=(), in_graph=info.mutated, output_count=len(remaining), strides=info.strides[dropped:]
    )
    return remaining, info.shifted(-dropped)


def _shifted(alias: tuple[AliasSource, int] | None, dropped: int) -> tuple[AliasSource, int] | None:
    """Return the owner of an output's memory without the first ``dropped`` flat outputs."""
    if alias is None or alias[0] is not AliasSource.OUTPUT:
        return alias
    return AliasSource.OUTPUT, alias[1] - dropped


def _memory(node: Any) -> Any:
    """Return the identity of the memory of a node's value."""
    value = node.meta.get("val")
    if isinstance(value, torch.Tensor) and value.layout is torch.strided:
        return value.untyped_storage()._cdata
    return node
