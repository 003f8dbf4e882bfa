"""Trace a captured graph once, into an inference graph or a joint forward-and-backward graph.

The choice is made after the forward has run: the graph is joint if gradients are requested and an output, or
a new value of an input, requires one.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import torch
from torch.fx.experimental.symbolic_shapes import ShapeEnv

from fxstack_functionalize import torch_compat
from fxstack_functionalize.aliasing.analyze import Analysis, analyze
from fxstack_functionalize.aliasing.new_leaves import check_inputs
from fxstack_functionalize.errors import FunctionalizeError, TraceFailedError
from fxstack_functionalize.metadata.records import GraphInfo
from fxstack_functionalize.metadata.replay import AliasSource
from fxstack_functionalize.random.nested_draws import draws_inside
from fxstack_functionalize.sequential_backward import Runs, saved_storages
from fxstack_functionalize.shell import Shell
from fxstack_functionalize.torch_compat import pytree
from fxstack_functionalize.tracing.engine import DispatcherEngine, Engine, ModeEngine, storage_key
from fxstack_functionalize.tracing.finalize import FlatSlot, GradientSlot, finish
from fxstack_functionalize.tracing.functional import copy_back_in_graph
from fxstack_functionalize.tracing.inputs import Captured, RestartTraceError
from fxstack_functionalize.tracing.interpret import CapturedRun
from fxstack_functionalize.tracing.joint import add_backward
from fxstack_functionalize.tracing.session import Session
from fxstack_functionalize.tracing.tracer import AtenTracer
from fxstack_interchange import InputKind, Stage, StageGraph
from fxstack_interchange.operators.kernels import NAMESPACE


@dataclass(frozen=True, slots=True)
class Traced:
    """A traced graph with the records from which its runtime wrapper is made."""

    stage_graph: StageGraph
    shell: Shell
    backward_nodes: frozenset[str]
    """Names of the nodes that were recorded while autograd ran the backward."""

    @property
    def captured(self) -> Captured:
        return self.shell.captured

    @property
    def info(self) -> GraphInfo:
        return self.shell.info

    @property
    def trains(self) -> bool:
        return self.stage_graph.signature.stage is Stage.JOINT


@dataclass(frozen=True, slots=True)
class TraceRequest:
    """The kind of graph to make from a captured graph."""

    gradients: bool
    keep_mutations: bool = True
    replay_views: bool = True
    whole_attention: tuple[str, ...] = ()
    """See ``AotOptions``."""


def trace(
    captured: Captured, request: TraceRequest, decompositions: Mapping[Any, Callable[..., Any]] | None = None
) -> Traced:
    """Trace ``captured``, first with the fast functionalisation, then with the general one if needed."""
    if not isinstance(decompositions, Mapping | None):
        raise TypeError(
            f"decompositions map operators to functions, and are no {type(decompositions).__name__}.\n"
            "  fix: torch._decomp.get_decompositions(operators) makes such a table"
        )
    table = dict(decompositions or {})
    try:
        return _trace_inputs(captured, request, table)
    except FunctionalizeError:
        raise
    except Exception as error:
        raise TraceFailedError(error) from error


def _trace_inputs(
    captured: Captured, request: TraceRequest, table: Mapping[Any, Callable[..., Any]]
) -> Traced:
    """Trace ``captured``. Restart with inputs or views represented differently if the trace requires it."""
    try:
        return _trace_any(captured, request, table)
    except RestartTraceError as needed:
        changed = needed.change(captured)
    return _trace_inputs(changed, request, table)


def _trace_any(captured: Captured, request: TraceRequest, table: Mapping[Any, Callable[..., Any]]) -> Traced:
    if not (captured.needs_modes or _needs_modes(captured)):
        return _trace_with(DispatcherEngine(flat_views=captured.flat_views), captured, request, table)
    if captured.fake_mode.shape_env is None and _has_higher_order(captured):
        captured.fake_mode.shape_env = ShapeEnv()  # loops need symbols, even for static sizes
    return _trace_with(ModeEngine(flat_views=captured.flat_views), captured, request, table)


def _has_higher_order(captured: Captured) -> bool:
    return any(
        isinstance(node.target, torch_compat.HigherOrderOperator)
        for module in captured.graph_module.modules()
        if isinstance(module, torch.fx.GraphModule)
        for node in module.graph.nodes
    )


def _needs_modes(captured: Captured) -> bool:
    """Whether a node needs ``FunctionalTensorMode``: custom or higher-order operators, wrapper subclasses."""
    for module in captured.graph_module.modules():
        if isinstance(module, torch.fx.GraphModule):
            for node in module.graph.nodes:
                target = node.target
                if isinstance(target, torch_compat.HigherOrderOperator):
                    return True
                if getattr(target, "needs_modes", False):  # it makes wrapper subclasses
                    return True
                if isinstance(target, (torch_compat.OpOverload, torch_compat.OpOverloadPacket)) and not str(
                    target
                ).startswith(("aten", "prim", NAMESPACE)):
                    return True
    return False


def _trace_with(
    engine: Engine, captured: Captured, request: TraceRequest, table: Mapping[Any, Callable[..., Any]]
) -> Traced:
    tracer = AtenTracer(request.whole_attention, equal_draws=captured.equal_draws)
    session = Session(captured, engine, tracer, table)
    autocast = torch_compat.is_any_autocast_enabled()
    grad_mode = torch.is_grad_enabled()
    with session.recording():
        result = _run(session)
        flat, out_spec = pytree.tree_flatten(result)
        torch_compat.set_grad_enabled(grad_mode)
        analysis = analyze(session, flat, replay_views=request.replay_views)
        slots = _flat_slots(session, analysis)
        became_leaf = any(
            seen.requires_grad and not spec.fake.requires_grad
            for seen, spec in zip(analysis.inputs, captured.inputs, strict=True)
            if seen.is_tensor
        )
        trains = request.gradients or became_leaf
        differentiable = _differentiable(slots, analysis) if trains else ()
        nodes = [session.node_of(_plain(session, slot.value)) for slot in slots]
        info = GraphInfo(
            inputs=tuple(analysis.inputs),
            outputs=tuple(analysis.outputs),
            aliases=tuple(analysis.aliases),
            custom_views=tuple(analysis.custom_views.items()),
            mutated=tuple(i for i, seen in enumerate(analysis.inputs) if seen.mutates_data),
            in_graph=(),
            output_count=len(slots),
            differentiable=differentiable,
            grad_inputs=tuple(i for i, seen in enumerate(analysis.inputs) if seen.requires_grad),
            grad_mode=grad_mode,
            autocast=autocast,
            strides=tuple(_strides(slot) for slot in slots),
        )
        slots = [replace(slot, node=node) for slot, node in zip(slots, nodes, strict=True)]
        info = info.shifted(len(info.mutated))
        for position, seen in enumerate(info.outputs, start=len(info.mutated)):
            slots[position].alias = info.memory_of(seen, position)
        if differentiable:
            if not captured.equal_draws and draws_inside(tracer.root):
                raise RestartTraceError(lambda captured: replace(captured, equal_draws=True))
            check_inputs(info)
            info = _with_sequences(session, info, slots)
            unsaved = _unsaved(session, info, slots)
            gradients = add_backward(session, info, slots)
            info = replace(info, cut=_cut(info, gradients))
            stage_graph = finish(session, Stage.JOINT, slots, gradients)
            stage_graph = replace(stage_graph, signature=replace(stage_graph.signature, unsaved=unsaved))
        else:
            if request.keep_mutations:
                slots, info = copy_back_in_graph(session, slots, info)
            stage_graph = finish(session, Stage.FUNCTIONAL, slots, ())
    backward_nodes = frozenset(node.name for node in session.tracer.backward_nodes)
    return Traced(stage_graph, Shell(captured, info, out_spec), backward_nodes)


def _run(session: Session) -> Any:
    captured = session.captured
    arguments = [traced.argument for traced in session.inputs]
    owned = {path: arguments[index] for path, index in captured.owned.items()}
    run = CapturedRun(
        captured.graph_module, owned, session.tracer, session.engine, differentiable=not session.inference
    )
    # Nodes of the graph may enter levels of transforms, and a later node may raise.
    depth = torch_compat.get_dynamic_layer_stack_depth()
    try:
        return run.run(arguments[: captured.own_count])
    finally:
        torch_compat.pop_dynamic_layer_stack_and_undo_to_depth(depth)


def _flat_slots(session: Session, analysis: Analysis) -> list[FlatSlot]:
    """Return slots of mutated inputs, then slots of the values that user outputs need."""
    slots = [
        FlatSlot(traced.argument, mutated_input=index)
        for index, (seen, traced) in enumerate(zip(analysis.inputs, session.inputs, strict=True))
        if seen.mutates_data
    ]
    return slots + [FlatSlot(value) for value in analysis.values]


def _plain(session: Session, value: object) -> Any:
    return session.value(value) if isinstance(value, torch.Tensor) else value


def _strides(slot: FlatSlot) -> tuple[Any, ...] | None:
    """Return eager's strides. The functional value may have other strides after an in-place operator."""
    value = slot.value
    if slot.mutated_input is not None or not isinstance(value, torch.Tensor):
        return None
    return tuple(value.stride()) if value.layout is torch.strided else None


def _with_sequences(session: Session, info: GraphInfo, slots: Sequence[FlatSlot]) -> GraphInfo:
    """Record which outputs reach which inputs, and which can be differentiated one after the other."""
    runs = Runs({place: slots[place].value.grad_fn for place in info.differentiable})
    leaves = {index: session.inputs[index].leaf for index in info.grad_inputs}
    histories = [index for index in info.grad_inputs if not info.inputs[index].is_leaf]
    components = () if info.custom_views else runs.components(leaves, histories)
    sources = tuple(runs.sources(leaves).items())
    return replace(info, sequential=runs.atoms(), components=components, sources=sources)


def _unsaved(session: Session, info: GraphInfo, slots: Sequence[FlatSlot]) -> tuple[str, ...]:
    """Return the names of the inputs, except parameters, and outputs whose memory eager does not save."""
    saved = saved_storages((slots[place].value.grad_fn for place in info.differentiable), storage_key)
    inputs = zip(session.captured.inputs, session.inputs, strict=True)
    values = [
        (traced.node, traced.argument) for spec, traced in inputs if spec.kind is not InputKind.PARAMETER
    ]
    values += [(slot.node, slot.value) for slot in slots if slot.mutated_input is None]
    tensors = [(node, value) for node, value in values if isinstance(value, torch.Tensor)]
    return tuple(str(node) for node, value in tensors if storage_key(value) not in saved)


def _cut(info: GraphInfo, gradients: Sequence[GradientSlot]) -> tuple[int, ...]:
    """Return the inputs without gradient. The base of a custom function's view is not cut off."""
    bases = {alias.index for _, alias in info.custom_views if alias.source is AliasSource.INPUT}
    found = [slot.index for slot in gradients if slot.node is None and slot.index not in bases]
    # If no input has a gradient, an output that requires one needs an input with its history.
    return tuple(found) if len(found) < len(gradients) else ()


def _differentiable(slots: list[FlatSlot], analysis: Analysis) -> tuple[int, ...]:
    """Return the flat outputs with a gradient. A change that autograd does not see propagates none."""
    return tuple(
        position
        for position, slot in enumerate(slots)
        if isinstance(slot.value, torch.Tensor)
        and slot.value.requires_grad
        and slot.value.grad_fn is not None
        and (slot.mutated_input is None or analysis.inputs[slot.mutated_input].grad_visible)
    )
