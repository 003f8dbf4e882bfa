"""Read from the functional tensors which inputs the captured graph mutated, and classify its outputs.

A graph may return new leaves (``zeros_like(x, requires_grad=True)``, ``y.detach().requires_grad_()``). If no
other output and no input depends on such a leaf, the leaf is an ordinary result: the wrapper calls
``requires_grad_()`` on it after the compiled graph has run. Otherwise the backward would have to accumulate
its gradient, which is refused.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import torch

from fxstack_functionalize import torch_compat
from fxstack_functionalize.aliasing.aliases import AliasPlan, ViewKind, choose_base, grad_fn_of
from fxstack_functionalize.aliasing.metamutation import relayouts_of
from fxstack_functionalize.aliasing.synthetic_bases import groups_to_merge, restart_with_bases
from fxstack_functionalize.errors import UnsupportedGraphError
from fxstack_functionalize.metadata.records import GraphInfo, InputInfo, OutputInfo, OutputSource
from fxstack_functionalize.metadata.replay import AliasInfo, AliasSource
from fxstack_functionalize.tracer.engine import storage_key, version_of
from fxstack_functionalize.tracer.inputs import SYMBOLIC, CapturedInput, RestartTraceError
from fxstack_functionalize.tracing.session import Session, TracedInput
from fxstack_functionalize.views.differentiable_bases import leaves_behind, root_of

# Limits: three uses of a new leaf are refused: another output is a view of the leaf, another output depends
# on the leaf, or an output depends on the leaf while no input requires a gradient.


def clear_new_leaves(
    outputs: Mapping[int, torch.Tensor], inputs: Sequence[TracedInput], input_ids: Collection[int]
) -> set[int]:
    """Clear ``requires_grad`` of the new leaves among ``outputs`` (by position, each once). Return their ids.

    ``input_ids``: ids of tensors that are inputs or represent inputs.

    Raises:
        UnsupportedGraphError: if another output or an input depends on a new leaf.
    """
    new_leaves = {position: value for position, value in outputs.items() if _is_leaf(value, input_ids)}
    if not new_leaves:
        return set()
    leaves = {id(value) for value in new_leaves.values()}
    dependants = [value for value in outputs.values() if id(value) not in leaves]
    dependants += [traced.argument for traced in inputs if traced.inner is not None]
    functions = [grad_fn_of(tensor) for tensor in dependants if tensor.requires_grad]
    reached = {id(root_of(tensor)) for tensor in dependants} | set(map(id, leaves_behind(functions)))
    for position, value in new_leaves.items():
        if value._base is not None or id(value) in reached:
            raise UnsupportedGraphError(
                f"output {position} is a new leaf, made by requires_grad_() in the graph, and others depend on it",
                why="its gradient would have to be accumulated inside the compiled backward",
                fix="call requires_grad_() on the result, outside the compiled function",
            )
    for value in new_leaves.values():
        value.requires_grad_(requires_grad=False)
    return leaves


def check_leaves(info: GraphInfo) -> None:
    """Raise UnsupportedGraphError if a training graph has no input with a gradient.

    All its leaves are new then, and autograd calls a custom function's backward only for inputs.
    """
    if not info.grad_inputs:
        raise UnsupportedGraphError(
            "an output has a history, but no input of the graph requires a gradient",
            why="what is made by requires_grad_() in the graph is the only leaf behind it",
            fix="call requires_grad_() outside the compiled function, or detach the output",
        )


def _is_leaf(value: torch.Tensor, input_ids: Collection[int]) -> bool:
    """Whether an output is a leaf that the graph made, by ``requires_grad_()`` on a new tensor.

    ``input_ids``: the ids of the graph's inputs.
    """
    # A view of a tensor with a gradient reports the ``grad_fn`` and ``requires_grad`` of that tensor.
    owner = root_of(value) if root_of(value).requires_grad else value
    return owner.requires_grad and grad_fn_of(owner) is None and id(owner) not in input_ids


@dataclass(slots=True)
class Analysis:
    """The result of ``analyze``. ``values``: the flat graph outputs that follow the new values of mutated inputs."""

    inputs: list[InputInfo]
    outputs: list[OutputInfo] = field(default_factory=list)
    aliases: list[AliasInfo] = field(default_factory=list)
    values: list[Any] = field(default_factory=list)
    custom_views: dict[int, AliasInfo] = field(default_factory=dict)


def analyze(session: Session, outputs: Sequence[Any], *, replay_views: bool) -> Analysis:
    """Classify every input and every user output after the captured graph has run."""
    infos = [
        _input_info(session, spec, traced)
        for spec, traced in zip(session.captured.inputs, session.inputs, strict=True)
    ]
    _merge_if_aliased(session, infos)
    analysis = Analysis(infos)
    _OutputClassifier(session, analysis, outputs).classify(replay_views=replay_views)
    return analysis


def _input_info(session: Session, spec: CapturedInput, traced: TracedInput) -> InputInfo:
    """Return the record of one input.

    Restart the trace with ``keep_views`` if the input is a view in eager, is no view in the trace, and gained
    a history.
    """
    name = spec.name
    if traced.inner is None:
        return InputInfo(name, is_tensor=False)
    argument = traced.argument
    core = session.engine.core(argument)
    torch_compat.functional_sync(argument)
    gains_history = argument.requires_grad and not spec.fake.requires_grad
    viewed = spec.fake._base is not None and traced.base is None
    if viewed and gains_history and not session.captured.keep_views:
        raise RestartTraceError(lambda captured: replace(captured, keep_views=True))
    mutates_data = traced.base is None and torch_compat.functionalize_has_data_mutation(core)
    relayouts = relayouts_of(session, spec, traced)
    bumps = version_of(argument) - traced.version - sum(step.version_bumps for step in relayouts)
    return InputInfo(
        name,
        is_tensor=True,
        requires_grad=traced.leaf is not None,
        is_leaf=traced.leaf is None or traced.leaf is argument,
        mutates_data=mutates_data,
        grad_visible=argument.grad_fn is not traced.grad_fn,
        version_bumps=0 if traced.rooted else bumps,
        relayouts=relayouts,
    )


def _merge_if_aliased(session: Session, infos: Sequence[InputInfo]) -> None:
    """Restart the trace with merged inputs if the graph changes an input that shares memory or a root with
    another input.

    If the size or strides of such an input change, the input gets a base of its own, even if it shares no
    memory. A trace whose inputs are merged already is not restarted.
    """
    if any(spec.members is not None for spec in session.captured.inputs):
        return
    changed = {index for index, info in enumerate(infos) if info.mutates_data}
    relaid = {index for index in changed if any(step.changes_layout for step in infos[index].relayouts)}
    groups = groups_to_merge(session.captured, changed, relaid)
    if groups:
        raise restart_with_bases(groups)


class _OutputClassifier:
    """Classifies the user outputs. Each output has a slot among the flat outputs; the slot may stay empty."""

    def __init__(self, session: Session, analysis: Analysis, outputs: Sequence[Any]) -> None:
        self.session = session
        self.analysis = analysis
        self.outputs = outputs
        analysis.values = [None] * len(outputs)
        self.plan = AliasPlan(session, analysis.values)
        self.first: dict[int, int] = {}
        """The first position of each distinct tensor."""
        self.leaves: set[int] = set()
        """The ids of outputs that are new leaves."""

    def classify(self, *, replay_views: bool) -> None:
        """Plan all outputs: set new leaves aside, choose the bases of shared memory, then record each output."""
        for position, value in enumerate(self.outputs):
            if isinstance(value, torch.Tensor):
                if not self.session.engine.is_functional(value):
                    raise UnsupportedGraphError(
                        f"output {position} is a {type(value).__name__} that no traced operator made",
                        why="it is neither an input nor computed from one, so its value is not in the graph",
                        fix="pass the tensor as an input",
                    )
                self.first.setdefault(id(value), position)
        outputs = {position: self.outputs[position] for position in self.first.values()}
        self.leaves = clear_new_leaves(outputs, self.session.inputs, self.plan.locations)
        self._add_bases(replay_views=replay_views)
        for position, value in enumerate(self.outputs):
            if isinstance(value, torch.Tensor):
                self.analysis.outputs.append(self._classify_tensor(value))
            elif isinstance(value, SYMBOLIC):
                self.analysis.values[position] = value
                self.analysis.outputs.append(OutputInfo(OutputSource.VALUE, position, is_tensor=False))
            else:
                self.analysis.outputs.append(
                    OutputInfo(OutputSource.CONSTANT, is_tensor=False, constant=value)
                )
        self.analysis.aliases = self.plan.aliases

    def _add_bases(self, *, replay_views: bool) -> None:
        """If outputs share memory that no input owns, make one of the outputs' roots the owner of the memory."""
        groups: dict[int, list[torch.Tensor]] = {}
        for position in self.first.values():
            value = self.outputs[position]
            if not self.plan.has_owner(value):
                groups.setdefault(storage_key(value), []).append(value)
        for members in groups.values():
            if len(members) == 1 and not (replay_views and members[0]._base is not None):
                continue
            base = choose_base(self.session, members)
            if base is not None and all(
                value is base or root_of(value) is base or not root_of(value).requires_grad
                for value in members
            ):
                self.plan.add_base(base, self.first.get(id(base)))
            elif len({id(root) for root in map(root_of, members) if root.requires_grad}) > 1:
                raise _own_gradient_error()

    def _classify_tensor(self, value: torch.Tensor) -> OutputInfo:
        """Return the record of a tensor output. Its value stays out of the graph if the caller can make the tensor."""
        leaf = id(value) in self.leaves
        grad = value.requires_grad or leaf
        position = self.first[id(value)]
        is_free = self.plan.is_placed(value) or not self.plan.has_owner(value)
        view_kind = ViewKind.VIEW if is_free else self.plan.view_kind(value)
        if view_kind is ViewKind.UNCLEAR:
            raise _own_gradient_error()
        if view_kind is ViewKind.CUSTOM or not (self.plan.has_owner(value) or self.plan.is_placed(value)):
            self.analysis.values[position] = value
            if view_kind is ViewKind.CUSTOM:
                self.analysis.custom_views[position] = self.plan.custom_view(value)
            return OutputInfo(OutputSource.VALUE, position, requires_grad=grad, is_leaf=leaf)
        source, index = self.plan.place_tensor(value)
        if source is AliasSource.OUTPUT:
            self.analysis.values[index] = value
        return OutputInfo(_SOURCES[source], index, requires_grad=grad, is_leaf=leaf)


def _own_gradient_error() -> UnsupportedGraphError:
    """Return the error about an output that shares memory with another tensor, but has its own gradient."""
    return UnsupportedGraphError(
        "an output shares memory with another tensor but has a gradient of its own",
        why="it comes from .data, detach() or a view under no_grad, and was changed with gradients on",
        fix="clone the tensor before changing it",
    )


_SOURCES = {
    AliasSource.INPUT: OutputSource.INPUT,
    AliasSource.OUTPUT: OutputSource.VALUE,
    AliasSource.ALIAS: OutputSource.ALIAS,
}
