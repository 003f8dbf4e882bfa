"""A compiled training graph over wrappers at run time: one autograd node whose tensors are the wrappers themselves."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import torch
from torch.utils import _pytree as pytree

from fxstack_functionalize.runtime.backwards import LazyBackward
from fxstack_functionalize.runtime.calling import FORWARD, check_results, listed
from fxstack_functionalize.runtime.modes import without_autocast
from fxstack_functionalize.wrapped.layout import flatten_all, rebuild_all

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from fxstack_functionalize.runtime import Stages
    from fxstack_functionalize.trace import Traced
    from fxstack_functionalize.wrapped.desugar import Desugared


def trained_callable(graph: Desugared, traced: Traced, stages: Stages) -> Callable[..., Any]:
    """Return a callable of the graph's arguments; its results have the compiled backward as their history."""
    partition = stages.partition(traced.stage_graph)
    forward = listed(stages.forward(partition), FORWARD)
    if traced.info.autocast:  # the graph holds the casts
        forward = without_autocast(forward)
    count = len(partition.backward.signature.outputs)
    backward = LazyBackward(stages.now_or_later(partition.backward), count)
    compiled = _function(graph, forward, backward, len(partition.forward.signature.outputs))
    spec = graph.spec

    def run(*args: Any) -> Any:
        return pytree.tree_unflatten(list(compiled.apply(*args)), spec)  # type: ignore[no-untyped-call]

    return run if graph.grad_mode else torch.enable_grad()(run)


def _function(
    graph: Desugared,
    forward: Callable[[list[Any]], Sequence[Any]],
    backward: Callable[[list[Any]], Sequence[Any]],
    expected: int,
) -> type[torch.autograd.Function]:
    width = sum(len(layout.leaves) for layout in graph.outputs)
    leaves = [leaf for layout in graph.outputs for leaf in layout.leaves]
    constant = set(range(len(graph.outputs))) - set(graph.differentiable)

    class Compiled(torch.autograd.Function):
        @staticmethod
        def forward(ctx: Any, *args: Any) -> Any:  # type: ignore[override]
            flat = check_results(forward(flatten_all(graph.inputs, args)), expected, FORWARD)
            parts = [leaf.restride(part) for leaf, part in zip(leaves, flat[:width], strict=True)]
            values = rebuild_all(graph.outputs, parts)
            kept = [arg for arg in args if isinstance(arg, torch.Tensor)]
            saved = [value for value in flat[width:] if isinstance(value, torch.Tensor)]
            ctx.rest = [value for value in flat[width:] if not isinstance(value, torch.Tensor)]
            ctx.others = [None if isinstance(arg, torch.Tensor) else arg for arg in args]
            ctx.kept = len(kept)
            ctx.save_for_backward(*kept, *saved)
            ctx.set_materialize_grads(False)
            ctx.mark_non_differentiable(
                *(values[place] for place in constant if isinstance(values[place], torch.Tensor))
            )
            return tuple(values)

        @staticmethod
        def backward(ctx: Any, *grads: Any) -> Any:
            kept, saved = ctx.saved_tensors[: ctx.kept], ctx.saved_tensors[ctx.kept :]
            tangents = [
                graph.outputs[place].zeros() if grads[place] is None else grads[place]
                for place in graph.differentiable
            ]
            if torch.is_grad_enabled() or not _fit(graph, tangents):
                return _in_eager(graph, _arguments(ctx.others, kept), tangents)
            with torch.no_grad():
                arguments = [*saved, *ctx.rest, *flatten_all(graph.tangents, tangents)]
                return _gradients(graph, backward(arguments), len(ctx.others))

    return Compiled


def _fit(graph: Desugared, tangents: Sequence[Any]) -> bool:
    """Whether the tangents are of the classes, and have the metadata, that the backward was traced with."""
    return all(
        layout.fits(tangent) for layout, tangent in zip(graph.tangents, tangents, strict=True)
    )


def _gradients(graph: Desugared, flat: Sequence[Any], inputs: int) -> tuple[Any, ...]:
    found: list[Any] = [None] * inputs
    remaining = iter(flat)
    for place, layout in zip(graph.trained, graph.gradients, strict=True):
        if layout is not None:
            found[place] = layout.rebuild(remaining)
    return tuple(found)


def _arguments(others: Sequence[Any], kept: Sequence[Any]) -> list[Any]:
    tensors = iter(kept)
    return [next(tensors) if other is None else other for other in others]


def _in_eager(graph: Desugared, arguments: list[Any], tangents: Sequence[Any]) -> tuple[Any, ...]:
    """The gradients by running the captured graph again: to be differentiated once more, or for other tangents."""
    again = torch.is_grad_enabled()
    if not again:
        for place in graph.trained:
            arguments[place] = arguments[place].detach().requires_grad_()
    leaves = [arguments[place] for place in graph.trained]
    with torch.set_grad_enabled(graph.grad_mode):
        values = pytree.tree_leaves(graph.module(*arguments))
    wanted = [values[place] for place in graph.differentiable]
    gradients = torch.autograd.grad(wanted, leaves, tangents, allow_unused=True, create_graph=again)
    found: list[Any] = [None] * len(arguments)
    for place, gradient in zip(graph.trained, gradients, strict=True):
        found[place] = gradient
    return tuple(found)
