"""The passes from a captured graph to a functional graph or a joint graph.

``functionalize`` records the forward. If an output then requires a gradient, ``joint`` follows, otherwise
``inference``. If there are saved-tensor hooks, ``hooks`` follows ``joint``. In the examples, ``example``
traces a function and prints what the pass changed: the lines before (``-``) and after (``+``) the pass.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Final

import torch

from fxstack_functionalize import torch_compat
from fxstack_functionalize.aliasing.analyze import Analysis, analyze, check_leaves
from fxstack_functionalize.hooks.passes import HOOKS
from fxstack_functionalize.metadata.records import GraphInfo, OutputInfo, OutputSource
from fxstack_functionalize.metadata.replay import AliasSource
from fxstack_functionalize.random.nested_draws import has_nested_draws
from fxstack_functionalize.sequential_backward import ResultHistories, saved_storages
from fxstack_functionalize.torch_compat import TreeSpec, pytree
from fxstack_functionalize.tracer.engine import storage_key
from fxstack_functionalize.tracer.inputs import RestartTraceError, TraceRequest
from fxstack_functionalize.tracing.finalize import (
    FlatSlot,
    GradientSlot,
    copy_back_in_graph,
    remove_dead_code,
    with_signature,
)
from fxstack_functionalize.tracing.interpret import CapturedRun
from fxstack_functionalize.tracing.joint import add_backward
from fxstack_functionalize.tracing.session import Session
from fxstack_interchange import InputKind, Stage, StageGraph
from fxstack_interchange.format.show import show, show_graph
from fxstack_interchange.passes import NothingToDo, Pass


@dataclass(frozen=True, slots=True)
class Tracing:
    """A trace between two passes. The passes append to the graph of ``session``; they replace all other fields.

    ``results``: the flat results of the captured graph. ``slots``: the flat outputs of the forward.
    """

    session: Session
    request: TraceRequest
    grad_mode: bool
    """Whether grad mode was on when the trace began."""
    autocast: bool
    """Whether autocast was on when the trace began."""
    results: tuple[Any, ...] = ()
    out_spec: TreeSpec | None = None
    """The nesting of the captured graph's outputs; None before ``record_forward``."""
    graph_info: GraphInfo | None = None
    """None before ``find_aliases``."""
    slots: tuple[FlatSlot, ...] = ()
    gradients: tuple[GradientSlot, ...] = ()
    unsaved: tuple[str, ...] = ()
    """See ``GraphSignature.unsaved``."""
    stage_graph: StageGraph | None = None
    """The finished graph; None before ``add_signature``."""

    @property
    def info(self) -> GraphInfo:
        assert self.graph_info is not None
        return self.graph_info

    @property
    def stage(self) -> Stage:
        """Return the kind of the graph: it is joint if an output, or a new value of an input, has a gradient."""
        return Stage.JOINT if self.info.differentiable else Stage.FUNCTIONAL


def record_forward(state: Tracing) -> Tracing:
    """Run the captured graph once on functional tensors, and record the ATen operators that run.

    >>> example("record_forward", lambda x: x.mul_(2).relu())
    - x: ?,
    - mul_ = x.mul_(2)
    - relu = mul_.relu()
    - return relu
    + x: f32[3],
    + mul = aten.mul.Tensor(x, 2)
    + relu = aten.relu(mul)
    """
    session = state.session
    arguments = [traced.argument for traced in session.inputs]
    captured = session.captured
    owned = {path: arguments[index] for path, index in captured.owned.items()}
    regions = state.request.regions
    run = CapturedRun(
        captured.graph_module if regions is None else regions.graph_of(captured.graph_module),
        owned,
        session.tracer,
        session.engine,
        differentiable=not session.inference,
        regions=regions,
        rules=session.decompositions,
    )
    # Nodes of the graph may enter levels of transforms, and a later node may raise.
    depth = torch_compat.get_dynamic_layer_stack_depth()
    try:
        result = run.run(arguments[: captured.placeholder_count])
    finally:
        torch_compat.pop_dynamic_layer_stack_and_undo_to_depth(depth)
    flat, out_spec = pytree.tree_flatten(result)
    torch_compat.set_grad_enabled(state.grad_mode)
    return replace(state, results=tuple(flat), out_spec=out_spec)


def find_aliases(state: Tracing) -> Tracing:
    """Find the inputs that have new values, and the memory that each output shares.

    >>> example("find_aliases", lambda x: (x.mul_(2), x[0], x.sum()))
    + # new value of x: mul
    + # output 0: input x
    + # output 1: view of input x
    + # output 2: sum_1
    """
    session = state.session
    analysis = analyze(session, state.results, replay_views=state.request.replay_views)
    slots = [
        FlatSlot(traced.argument, mutated_input=index)
        for index, (facts, traced) in enumerate(zip(analysis.inputs, session.inputs, strict=True))
        if facts.mutates_data
    ]
    slots += [FlatSlot(value) for value in analysis.values]
    became_leaf = any(
        facts.requires_grad and not spec.fake.requires_grad
        for facts, spec in zip(analysis.inputs, session.captured.inputs, strict=True)
        if facts.is_tensor
    )
    trains = state.request.gradients or became_leaf
    differentiable = _find_differentiable(slots, analysis) if trains else ()
    values = [slot.value for slot in slots]
    nodes = [session.node_of(session.value(v) if isinstance(v, torch.Tensor) else v) for v in values]
    info = GraphInfo(
        inputs=tuple(analysis.inputs),
        outputs=tuple(analysis.outputs),
        aliases=tuple(analysis.aliases),
        custom_views=tuple(analysis.custom_views.items()),
        mutated=tuple(i for i, facts in enumerate(analysis.inputs) if facts.mutates_data),
        in_graph=(),
        output_count=len(slots),
        differentiable=differentiable,
        grad_inputs=tuple(i for i, facts in enumerate(analysis.inputs) if facts.requires_grad),
        grad_mode=state.grad_mode,
        autocast=state.autocast,
        strides=tuple(_eager_strides(slot) for slot in slots),
    )
    info = info.shifted(len(info.mutated))
    owners: list[tuple[AliasSource, int] | None] = [None] * len(info.mutated)
    owners += [
        info.memory_of(facts, position) for position, facts in enumerate(info.outputs, len(info.mutated))
    ]
    owners += [None] * (len(slots) - len(owners))
    slots_with_facts = zip(slots, nodes, owners, strict=True)
    slots = [replace(slot, node=node, alias=owner) for slot, node, owner in slots_with_facts]
    return replace(state, graph_info=info, slots=tuple(slots))


def group_outputs(state: Tracing) -> Tracing:
    """Find the outputs that reach each input that requires a gradient, and the outputs that share saved tensors.

    >>> example("group_outputs", lambda x: (x.exp().sin(), x.cos()))
    + view = aten.view(x, [3])
    + # gradient of x: from flat outputs 0, 1
    + # flat outputs 0 share saved tensors
    + # flat outputs 1 share saved tensors
    """
    session, info = state.session, state.info
    if not session.captured.equal_draws and has_nested_draws(session.tracer.root):
        raise RestartTraceError(lambda captured: replace(captured, equal_draws=True))
    check_leaves(info)
    runs = ResultHistories(
        {position: state.slots[position].value.grad_fn for position in info.differentiable}
    )
    leaves = {index: session.inputs[index].leaf for index in info.grad_inputs}
    sources = tuple(runs.sources(leaves).items())
    info = replace(info, sequential=runs.atoms(), sources=sources)
    return replace(state, graph_info=info)


def trace_backward(state: Tracing) -> Tracing:
    """Record the gradients in the same graph, with a tangent as input for each differentiable output.

    >>> example("trace_backward", lambda x: x.sin())
    + tangents_1: f32[3],
    + cos = aten.cos(x)
    + mul = aten.mul.Tensor(tangents_1, cos)
    - # gradient of x: from flat outputs 0
    + # gradient of x: mul
    """
    unsaved = _unsaved_names(state)  # adding the backward frees the history
    slots, gradients = add_backward(state.session, state.info, state.slots)
    info = replace(state.info, cut=_find_inputs_without_gradient(state.info, gradients))
    return replace(state, graph_info=info, slots=slots, gradients=gradients, unsaved=unsaved)


def write_back(state: Tracing) -> Tracing | NothingToDo:
    """Copy new values of inputs into the inputs at the end of the graph, and drop them from the outputs.

    >>> example("write_back", lambda x: x.mul_(2).sum())
    - # new value of x: mul
    + copy__default = aten.copy_(x, mul)
    """
    if not state.info.mutated:
        return NothingToDo("no input has a new value")
    if not state.request.keep_mutations:
        return NothingToDo("the caller of the graph writes the new values back")
    slots, info = copy_back_in_graph(state.session, state.slots, state.info)
    return replace(state, graph_info=info, slots=tuple(slots))


def add_outputs(state: Tracing) -> Tracing:
    """End the graph with its outputs: new values of inputs, user outputs, bases of views, gradients.

    >>> example("add_outputs", lambda x: (x.sin(), 3))
    + sin,
    + None,
    """
    outputs = [slot.node for slot in state.slots] + [grad.node for grad in state.gradients]
    state.session.tracer.graph.output(tuple(outputs))
    return state


def drop_dead_code(state: Tracing) -> Tracing | NothingToDo:
    """Remove unused nodes, except nodes that may have an effect, raise an error or draw random numbers.

    >>> example("drop_dead_code", lambda x: (x.sin(), x.cos().exp(), torch.rand(3))[0])
    - cos = aten.cos(x)
    - exp = aten.exp(cos)
    """
    tracer = state.session.tracer
    changed = remove_dead_code(tracer.graph, root=tracer.root)
    return state if changed else NothingToDo("every node is used or has an effect")


def add_signature(state: Tracing) -> Tracing:
    """Say what each input and output is, and keep the documented metadata only.

    >>> example("add_signature", lambda x: x.sin())
    - x: f32[3],
    + # functional graph: 1 inputs, 1 operations, 1 outputs
    + x: f32[3],  # user_input
    - sin,
    - # output 0: sin
    + sin,  # user_output
    """
    stage_graph = with_signature(state.session, state.stage, state.slots, state.gradients)
    return replace(
        state,
        stage_graph=replace(stage_graph, signature=replace(stage_graph.signature, unsaved=state.unsaved)),
    )


def text(state: Tracing) -> str:
    """Return the graph as text, with what is known of its inputs and outputs as comments."""
    if state.stage_graph is not None:
        return show(state.stage_graph)
    if state.out_spec is None:
        return show_graph(state.session.captured.graph_module.graph)
    return show_graph(state.session.tracer.graph) + "".join(f"# {line}\n" for line in _fact_lines(state))


def _fact_lines(state: Tracing) -> Iterator[str]:
    """Yield the facts about inputs and outputs that the graph does not show, as lines for ``text``."""
    info = state.graph_info
    if info is None:
        return
    names = [described.name for described in info.inputs]
    for slot in state.slots:
        if slot.mutated_input is not None:
            yield f"new value of {names[slot.mutated_input]}: {slot.node}"
    for position, described in enumerate(info.outputs):
        yield f"output {position}: {_describe_output(state, described)}"
    if state.gradients:
        yield from (f"gradient of {names[slot.index]}: {slot.node}" for slot in state.gradients)
    else:
        yield from (
            f"gradient of {names[index]}: from flat outputs {_join_numbers(group)}"
            for index, group in info.sources
        )
    yield from (f"flat outputs {_join_numbers(group)} share saved tensors" for group in info.sequential)


def _join_numbers(numbers: Sequence[int]) -> str:
    return ", ".join(map(str, numbers))


def _describe_output(state: Tracing, output: OutputInfo) -> str:
    """Return as text where the caller gets a user output from: a constant, an input, a flat output or a view."""
    info = state.info
    if output.source is OutputSource.CONSTANT:
        return repr(output.constant)
    owner = info.memory_of(output, -1)
    assert owner is not None
    source, index = owner
    name = f"input {info.inputs[index].name}" if source is AliasSource.INPUT else str(state.slots[index].node)
    return f"view of {name}" if output.source is OutputSource.ALIAS else name


def _eager_strides(slot: FlatSlot) -> tuple[Any, ...] | None:
    """Return eager's strides. The functional value may have other strides after an in-place operator."""
    value = slot.value
    if slot.mutated_input is not None or not isinstance(value, torch.Tensor):
        return None
    return tuple(value.stride()) if value.layout is torch.strided else None


def _unsaved_names(state: Tracing) -> tuple[str, ...]:
    """Return the names of inputs and outputs whose memory eager does not save. Parameters are left out."""
    session, slots = state.session, state.slots
    saved = saved_storages(
        (slots[position].value.grad_fn for position in state.info.differentiable), storage_key
    )
    inputs = zip(session.captured.inputs, session.inputs, strict=True)
    values = [
        (traced.node, traced.argument) for spec, traced in inputs if spec.kind is not InputKind.PARAMETER
    ]
    values += [(slot.node, slot.value) for slot in slots if slot.mutated_input is None]
    tensors = [(node, value) for node, value in values if isinstance(value, torch.Tensor)]
    return tuple(str(node) for node, value in tensors if storage_key(value) not in saved)


def _find_inputs_without_gradient(info: GraphInfo, gradients: Sequence[GradientSlot]) -> tuple[int, ...]:
    """Return the inputs without gradient, except bases of a custom function's views."""
    bases = {alias.index for _, alias in info.custom_views if alias.source is AliasSource.INPUT}
    return tuple(slot.index for slot in gradients if slot.node is None and slot.index not in bases)


def _find_differentiable(slots: list[FlatSlot], analysis: Analysis) -> tuple[int, ...]:
    """Return the flat outputs with a gradient. An input's new value has none if autograd does not see the change."""
    return tuple(
        position
        for position, slot in enumerate(slots)
        if isinstance(slot.value, torch.Tensor)
        and slot.value.requires_grad
        and slot.value.grad_fn is not None
        and (slot.mutated_input is None or analysis.inputs[slot.mutated_input].grad_visible)
    )


FORWARD: Final = (Pass("record_forward", record_forward), Pass("find_aliases", find_aliases))
_FINISH: Final = (
    Pass("add_outputs", add_outputs),
    Pass("drop_dead_code", drop_dead_code),
    Pass("add_signature", add_signature),
)
JOINT: Final = (Pass("group_outputs", group_outputs), Pass("trace_backward", trace_backward), *_FINISH)
INFERENCE: Final = (Pass("write_back", write_back), *_FINISH)

STAGES: Final[Mapping[str, tuple[Pass[Any], ...]]] = {
    "functionalize": FORWARD,
    "joint": JOINT,
    "hooks": HOOKS,
    "inference": INFERENCE,
}
"""The passes of each stage, in order."""
