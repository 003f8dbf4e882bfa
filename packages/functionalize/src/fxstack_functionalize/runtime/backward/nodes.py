"""Further autograd nodes for the results of a compiled graph, besides the node of the graph itself.

Autograd runs and frees everything behind a node, even behind outputs without gradient. So a result whose
history in eager is not that of all results gets its own node: ``in_components`` does so for results that come
from other intermediate tensors than the first results, ``edge_gradients`` for results that are computed from
other results.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Any

import torch

from fxstack_functionalize import torch_compat
from fxstack_functionalize.metadata.records import GraphInfo
from fxstack_functionalize.runtime.backward.replay import Replay
from fxstack_functionalize.runtime.backward.traceable import Key, Traceable, check_saved, let_trace, part_of

Backward = Callable[..., Sequence[Any]]

# Limits: if results with a common part come from different intermediate tensors, the backward of one result
# also runs through the histories of the others, with gradients of None. It raises if one of these was freed.


class _ResultHooks(OrderedDict[int, Callable[[torch.Tensor | None], Any]]):
    """The hooks of one of several results. Eager calls no hook of a result that gets no gradient."""

    def __setitem__(self, key: int, hook: Callable[[torch.Tensor | None], Any]) -> None:
        super().__setitem__(key, lambda grad: None if grad is None else hook(grad))


def register_hooks(node: Any, result: torch.Tensor) -> None:
    """Let ``node`` call the hooks of ``result``. The node also runs if only other results have a gradient."""
    result._backward_hooks = _ResultHooks()
    torch_compat.FunctionBase._register_hook_dict(node, result)


class HistoryNode(torch.autograd.Function):
    """The identity on results, in place, with edges to the tensors on which they depend."""

    @staticmethod
    def forward(ctx: Any, attributes: Mapping[str, Any], count: int, *tensors: torch.Tensor) -> Any:
        """``tensors``: ``count`` results, then tensors that only provide edges.

        ``attributes`` of the node. ``gradients`` is a function of the node and the gradients of the results,
        which returns those of ``tensors``.
        """
        for name, value in attributes.items():
            setattr(ctx, name, value)
        ctx.set_materialize_grads(False)
        ctx.mark_dirty(*tensors[:count])
        return tensors[:count]

    @staticmethod
    def backward(ctx: Any, *grads: Any) -> tuple[Any, ...]:
        return (None, None, *ctx.gradients(ctx, grads))


def _traceable(node: Any, missing: Sequence[bool]) -> Traceable | None:
    made: Traceable | None = node.traceable(missing)
    return made


def _key(node: Any) -> Key:
    check_saved(node)
    key: Key = node.key
    return key


let_trace(HistoryNode, _traceable, _key)
HistoryNode._backward_cls._register_hook_dict = register_hooks


def give_history(
    kind: type[HistoryNode], results: Sequence[Any], sources: Sequence[Any], attributes: Mapping[str, Any]
) -> None:
    """Give ``results`` a common node of class ``kind`` with edges to their own nodes and to ``sources``."""
    versions = [result._version for result in results]
    # Function.apply first handles functorch transforms in Python; the wrapper has handled them.
    super(torch.autograd.Function, kind).apply(attributes, len(results), *results, *sources)
    torch_compat.unsafe_set_version_counter(results, versions)


_LEAF = torch.empty(0, requires_grad=True)
"""The source of results that depend on no input, but on leaves that the graph makes. It gets no gradient."""


def without_history(args: Sequence[Any], places: Sequence[int], *, ends: bool) -> list[Any]:
    """Return ``args`` with those at ``places`` detached.

    ``ends``: no other argument requires grad. Autograd gives results a history only if an argument requires grad,
    so the first detached argument becomes a leaf, in place of the leaves that the graph makes.
    """
    given = [*args]
    for place in places:
        given[place] = given[place].detach()
    if ends and places:
        given[places[0]].requires_grad_()
    return given


def in_components(
    function: Any, apply: Callable[..., Any], info: GraphInfo, backward: Backward, replay: Replay
) -> Callable[..., Any]:
    """Return ``apply`` for all components. The node of ``apply`` itself is that of the first component.

    ``function``: the ``autograd.Function`` of ``apply``, with the backward ``backward``. The nodes share saved tensors
    (``held``) and the compiled backwards.
    """
    (first, own), *others = [
        (positions, [index for index in inputs if index not in info.cut])
        for positions, inputs in info.components
    ]
    foreign = [index for index in info.wanted if index not in own]
    traceable = [part_of(function, positions, inputs, info.output_count) for positions, inputs in others]

    def gradients(
        positions: Sequence[int], inputs: Sequence[int], ctx: object, grads: Sequence[Any]
    ) -> tuple[Any, ...]:
        given = dict(zip(positions, grads, strict=True))
        found = backward(ctx, *map(given.get, range(info.output_count)))
        return (*([None] * len(grads)), *([found[index] for index in inputs] or [None]))

    def call(*args: Any) -> Any:
        given = without_history(args, foreign, ends=not own)
        flat = apply(*given)
        state = flat[first[0]].grad_fn
        # A second differentiation needs the inputs with their histories.
        if replay.keeps:
            state.held.inputs = replay.keep(args)
        whole = {id(given[place]): args[place] for place in foreign}
        state.held.tensors = [whole.get(id(kept), kept) for kept in state.held.tensors]
        for number, (positions, inputs) in enumerate(others):
            attributes = {
                **vars(state),
                "gradients": partial(gradients, positions, inputs),
                "traceable": traceable[number],
                "key": (state._autograd_function_id, number),
            }
            results, sources = [flat[at] for at in positions], [args[index] for index in inputs] or [_LEAF]
            give_history(HistoryNode, results, sources, attributes)
        return flat

    return call
