"""Autograd nodes for the inputs that only some results of a compiled graph reach.

Autograd runs everything behind a node: hooks of a leaf, accumulation, the history of a tensor. So the node of
the graph itself has edges only to the inputs that all results reach. A result that reaches further inputs
gets a node of its own (``HistoryNode``), in front of the graph's node. Behind the ``HistoryNode`` is an
``_InputNode`` for each group of inputs that the same results reach. An ``_InputNode`` runs after the graph's
node, and passes on gradients that the graph's node has computed. So one compiled backward computes all
gradients, as if no input were partial.

These nodes cost 100 us and more in each step, and only hooks and histories of the inputs can observe them. So
a call whose partial inputs are leaves without hooks has the graph's node alone, with edges to all inputs.

In three cases, a compiled backward of only these results computes the gradients: autograd does not run the
graph's node (``autograd.grad(result, head_weight)``); autograd runs the graph's node later (other devices);
or the backward is traced.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from copy import copy
from dataclasses import dataclass, field
from types import SimpleNamespace
from typing import Any

import torch

from fxstack_functionalize import torch_compat
from fxstack_functionalize.metadata.records import GraphInfo
from fxstack_functionalize.runtime.backward.edge_gradients import watch_hooks
from fxstack_functionalize.runtime.backward.nodes import (
    HistoryNode,
    Traceable,
    give_history,
    make_traceable_part,
    set_traceable,
    without_history,
)
from fxstack_functionalize.runtime.backward.replay import Replay

Backward = Callable[..., Sequence[Any]]

# Limits: hooks that a program registers on a leaf after the call, or on the leaf's AccumulateGrad node, are called
# (with None) where eager does not call them. Graphs with saved-tensor hooks that run in eager, or with views of custom
# functions, have one node with edges to all inputs.

_task: Callable[[], int] = torch_compat.current_graph_task_id
_executes: Callable[[Any], bool] = torch_compat.will_engine_execute_node


@dataclass(frozen=True, slots=True)
class Group:
    """A group of results or a group of inputs. Every result in ``positions`` reaches every input in ``inputs``.

    For a group of results: ``numbers`` are the numbers of the input groups that the results reach, and
    ``shares`` says whether the results share saved tensors with other results.
    """

    positions: tuple[int, ...]
    inputs: tuple[int, ...]
    numbers: tuple[int, ...] = ()
    shares: bool = False


def find_groups(info: GraphInfo) -> tuple[list[Group], list[Group]]:
    """Return the groups of partial inputs, and the groups of results that reach the same groups of inputs."""
    by_sources: dict[tuple[int, ...], list[int]] = {}
    for index, positions in info.sources:
        if index not in info.cut and 0 < len(positions) < len(info.differentiable):
            by_sources.setdefault(positions, []).append(index)
    of_inputs = [Group(positions, tuple(inputs)) for positions, inputs in by_sources.items()]
    by_numbers: dict[tuple[int, ...], list[int]] = {}
    for position in info.differentiable:
        numbers = tuple(n for n, group in enumerate(of_inputs) if position in group.positions)
        by_numbers.setdefault(numbers, []).append(position)
    by_numbers.pop((), None)
    return of_inputs, [_group_results(info, of_inputs, *item) for item in by_numbers.items()]


def _group_results(
    info: GraphInfo, of_inputs: Sequence[Group], numbers: tuple[int, ...], positions: Sequence[int]
) -> Group:
    """Return the group of the results that reach the same groups of partial inputs."""
    results = set(positions)
    inputs = tuple(index for number in numbers for index in of_inputs[number].inputs)
    shares = any(results.intersection(atom) and not results.issuperset(atom) for atom in info.sequential)
    return Group(tuple(positions), inputs, numbers, shares)


@dataclass(slots=True)
class _Run:
    """One run of autograd over the nodes of one call."""

    waiting: set[int] = field(default_factory=set)
    """The groups of inputs whose nodes have not run."""
    gradient_of: dict[int, Any] = field(default_factory=dict)
    """By flat output: the gradients that nodes of results have passed on."""
    gradients: Sequence[Any] | None = None
    """The gradients of all inputs, once the node of the graph has run."""


class _Call:
    """One call of the graph, for all of its nodes. ``state``: the attributes of the graph's node."""

    def __init__(self, backward: Backward, count: int, state: Mapping[str, Any]) -> None:
        self._backward, self._count, self.state = backward, count, SimpleNamespace(**state)
        self.runs: dict[int, _Run] = {}

    def gradients(self, gradient_of: Mapping[int, Any], *, keep: bool) -> Sequence[Any]:
        """Return the gradients of all inputs. ``keep``: free no saved tensor, because a later node reads it."""
        state = copy(self.state)
        if keep:
            state.held = state.held.copy()
            if hasattr(state, "edge_call"):
                state.edge_call = copy(state.edge_call)
        return self._backward(state, *map(gradient_of.get, range(self._count)))


class _InputNode(torch.autograd.Function):
    """Passes on the gradients of partial inputs."""

    @staticmethod
    def forward(ctx: Any, group: Group, number: int, *inputs: torch.Tensor) -> torch.Tensor:
        """Return an empty tensor as an input of the graph's node, so that autograd runs this node after the
        graph's node.
        """
        ctx.group, ctx.number, ctx.device = group, number, inputs[0].device
        ctx.set_materialize_grads(False)
        return torch.empty(0, device=ctx.device)

    @staticmethod
    def backward(ctx: Any, _grad: object) -> tuple[Any, ...]:
        """Return the gradients of the group's inputs.

        They come from the graph's node if it has run, otherwise from a new run of the backward.
        """
        call, inputs = ctx.call, ctx.group.inputs
        run = call.runs.get(_task())
        if run is None or ctx.number not in run.waiting:
            return (None,) * (len(inputs) + 2)
        gradients = run.gradients
        if gradients is None:
            gradient_of = {position: run.gradient_of.get(position) for position in ctx.group.positions}
            gradients = call.gradients(gradient_of, keep=True)
        run.waiting.discard(ctx.number)
        if not run.waiting:
            del call.runs[_task()]
        return (None, None, *(gradients[index] for index in inputs))


def _state_of(node: Any) -> Any:
    """Return the object with the attributes of the graph's node, for a further node of the same call."""
    return node.call.state


def _no_gradients(node: Any, _missing: Sequence[bool]) -> Traceable:
    """Return the traceable backward of an input node: no gradients, because the result nodes return them."""
    nothing = (None,) * (len(node.group.inputs) + 2)
    return lambda *_arguments: nothing


set_traceable(_InputNode, _no_gradients, lambda node: (len(node.group.inputs),), _state_of)


class _ResultNode(HistoryNode):
    """The node of results that reach partial inputs."""


watch_hooks(_ResultNode)
set_traceable(_ResultNode, lambda node, missing: node.traceable(missing), lambda node: node.key, _state_of)


def _result_gradients(ctx: Any, grads: Sequence[Any]) -> tuple[Any, ...]:
    """Return ``grads`` for the graph's node. If the graph's node does not run, add the gradients of partial inputs."""
    call, group = ctx.call, ctx.group
    gradient_of = dict(zip(group.positions, grads, strict=True))
    main, *nodes = ctx.nodes
    if _executes(main):
        run = call.runs.setdefault(_task(), _Run())
        run.waiting.update(
            number for number, node in zip(group.numbers, nodes, strict=True) if _executes(node)
        )
        run.gradient_of.update(gradient_of)
        direct: Sequence[Any] = (None,) * len(group.inputs)
    else:
        gradients = call.gradients(gradient_of, keep=group.shares)
        direct = [gradients[index] for index in group.inputs]
    # Autograd runs a node in the thread of the device of its gradients, in the order of creation.
    marks = [None if node.device.type == "cpu" else torch.empty(0, device=node.device) for node in nodes]
    return (*grads, *marks, *direct)


def split_off(backward: Backward, of_inputs: Sequence[Group]) -> Backward:
    """Return ``backward`` for the graph's node, without the gradients of partial inputs: the input nodes
    return them.
    """
    partial_inputs = [index for group in of_inputs for index in group.inputs]

    def run(ctx: Any, *grads: Any) -> Sequence[Any]:
        """Run the graph's backward. Keep the gradients of partial inputs in the current run, and pass on the others."""
        gradients = backward(ctx, *grads)
        if not hasattr(ctx, "call"):  # the call has no further nodes
            return gradients
        current = ctx.call.runs.get(_task())
        if current is not None:
            current.gradients = gradients
        passed_on = [*gradients]
        for index in partial_inputs:
            passed_on[index] = None
        return tuple(passed_on)

    return run


def with_partial_inputs(
    function: Any,
    info: GraphInfo,
    groups: tuple[list[Group], list[Group]],
    backward: Backward,
    replay: Replay,
) -> Callable[..., Any]:
    """Return the ``apply`` of ``function``, a graph's ``autograd.Function``, with further nodes for ``groups``."""
    # Function.apply first handles functorch transforms in Python; the wrapper has handled them.
    apply = super(torch.autograd.Function, function).apply
    begin = super(torch.autograd.Function, _InputNode).apply
    of_inputs, of_results = groups
    foreign = [index for group in of_inputs for index in group.inputs]
    is_end = not set(info.wanted).difference(foreign)
    fixed = [_constant_attributes(function, info, group) for group in of_results]

    def call(*args: Any) -> Any:
        """Call the graph. Add the further nodes only if the program may observe a gradient of a partial input."""
        if not any(map(_is_observed, map(args.__getitem__, foreign))):
            flat = apply(*args)
            if replay.keeps:
                state = flat[info.differentiable[0]].grad_fn
                if not hasattr(state, "edge_call"):
                    state.held.inputs = replay.keep(args)
            return flat
        marks = [
            begin(group, number, *(args[index] for index in group.inputs))
            for number, group in enumerate(of_inputs)
        ]
        detached = without_history(args, foreign, is_end=is_end)
        # A second differentiation needs the inputs with their histories.
        inputs = replay.keep(args)
        flat = apply(*detached)
        state = flat[info.differentiable[0]].grad_fn
        edge_call = getattr(state, "edge_call", None)
        if edge_call is None:
            state.held.inputs = inputs
        else:
            edge_call.kept = inputs
        original_of = {id(detached[position]): args[position] for position in foreign}
        state.held.tensors = [original_of.get(id(saved), saved) for saved in state.held.tensors]
        shared_call = state.call = _Call(backward, info.output_count, vars(state))
        nodes: list[Any] = [mark.grad_fn for mark in marks]
        for node in nodes:
            node.call = shared_call
        for group, attributes in zip(of_results, fixed, strict=True):
            next_nodes = [state, *(nodes[number] for number in group.numbers)]
            node_attributes = {
                "gradients": _result_gradients,
                "call": shared_call,
                "edge_call": edge_call,
                "nodes": next_nodes,
                **attributes,
            }
            results, sources = [flat[at] for at in group.positions], [args[index] for index in group.inputs]
            sources = [*(marks[number] for number in group.numbers), *sources]
            give_history(_ResultNode, results, sources, node_attributes)
        return flat

    return call


def _is_observed(tensor: torch.Tensor) -> bool:
    """Whether a program can tell if autograd passes an undefined gradient to ``tensor``."""
    return bool(tensor.grad_fn is not None or tensor._backward_hooks or tensor._post_accumulate_grad_hooks)


def _constant_attributes(function: Any, info: GraphInfo, group: Group) -> dict[str, Any]:
    """Return, by name, the attributes of the node of ``group`` that are equal in all calls."""
    traceable = make_traceable_part(
        function, group.positions, group.inputs, len(group.numbers), info.output_count
    )
    key = (function._backward_cls._autograd_function_id, *group.positions)
    return {"group": group, "traceable": traceable, "key": key}
