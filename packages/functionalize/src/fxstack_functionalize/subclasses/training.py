"""Run a compiled training graph over wrappers: one autograd node whose inputs and outputs are wrappers."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import torch

from fxstack_functionalize import torch_compat
from fxstack_functionalize.errors import UnsupportedGraphError
from fxstack_functionalize.runtime.backward.backwards import LazyBackward
from fxstack_functionalize.runtime.calling import FORWARD, as_boxed, check_results, without_autocast
from fxstack_functionalize.runtime.training import Stages
from fxstack_functionalize.subclasses.desugar import Desugared
from fxstack_functionalize.subclasses.layout import (
    Layout,
    Plain,
    assemble_all,
    flatten_all,
    leaves_all,
    numbers_all,
    tensors_all,
)
from fxstack_functionalize.torch_compat import pytree
from fxstack_functionalize.trace import Traced
from fxstack_functionalize.tracer.inputs import Captured
from fxstack_functionalize.tracer.symbols import is_evaluable, make_filler

# Limits: results are views of arguments in memory, but not for autograd (_is_view). The backward keeps the
# arguments of the graph: for create_graph=True, and for gradients of another class or metadata, the graph
# runs again in eager.


def trained_callable(
    graph: Desugared, traced: Traced, captured: Captured, stages: Stages
) -> Callable[..., Any]:
    """Return a callable with the graph's arguments. Its results have the compiled backward as history.

    ``captured``: the traced graph of plain tensors, whose inputs bind the symbols of sizes.
    """
    partition = stages.partition(traced.stage_graph)
    forward = as_boxed(stages.forward(partition), FORWARD)
    if traced.info.autocast:  # the graph contains the casts
        forward = without_autocast(forward)
    count = len(partition.backward.signature.outputs)
    backward = LazyBackward(stages.compile_now_or_later(partition.backward), count)
    expected = len(partition.forward.signature.outputs)
    compiled = _function(graph, forward, backward, _sizes(graph, captured), expected)
    spec = graph.spec

    def run(*args: object) -> Any:
        return pytree.tree_unflatten(list(compiled.apply(*args)), spec)

    return run if graph.grad_mode else torch.enable_grad()(run)


def _sizes(graph: Desugared, captured: Captured) -> Callable[[Sequence[Any]], Any]:
    """Return a function from the arguments to the numbers of results that depend on sizes.

    The strides of the plain tensors of outputs; the symbolic numbers of outputs, and of gradients; for each
    differentiable output its symbolic numbers, and sizes and strides of its plain tensors.
    """
    nests = (
        tuple(leaf.stride for leaf in leaves_all(graph.outputs)),
        numbers_all(graph.outputs),
        numbers_all(layout for layout in graph.gradients if layout is not None),
        tuple(
            (layout.numbers, tuple((leaf.size, leaf.stride) for leaf in layout.leaves))
            for layout in graph.tangents
        ),
    )
    if not is_evaluable(captured, pytree.tree_leaves(nests)):
        raise UnsupportedGraphError(
            "a training graph over wrapper subclasses has results whose sizes depend on data",
            why="their wrappers are made of sizes that follow from the arguments",
            fix="compute them outside of the compiled function",
        )
    return make_filler(captured, nests)


def _function(
    graph: Desugared,
    forward: Callable[[list[Any]], Sequence[Any]],
    backward: Callable[[list[Any]], Sequence[Any]],
    sizes: Callable[[Sequence[Any]], Any],
    expected: int,
) -> type[torch.autograd.Function]:
    """Return the ``autograd.Function`` of the compiled graphs. The backward runs in eager for unexpected tangents."""
    leaves = leaves_all(graph.outputs)
    constant = set(range(len(graph.outputs))) - set(graph.differentiable)

    class Compiled(torch.autograd.Function):
        @staticmethod
        def forward(ctx: Any, *args: Any) -> Any:
            plain_arguments = flatten_all(graph.inputs, args)
            strides, numbers, ctx.gradients, ctx.tangents = sizes(plain_arguments)
            flat = check_results(forward(plain_arguments), expected, FORWARD)
            parts = map(Plain.restride, leaves, flat, strides)
            values = assemble_all(graph.outputs, parts, numbers)
            tensors = [arg for arg in args if isinstance(arg, torch.Tensor)]
            saved_values = flat[len(leaves) :]
            saved = [value for value in saved_values if isinstance(value, torch.Tensor)]
            ctx.rest = [value for value in saved_values if not isinstance(value, torch.Tensor)]
            ctx.others = [None if isinstance(arg, torch.Tensor) else arg for arg in args]
            ctx.kept = len(tensors)
            ctx.save_for_backward(*tensors, *saved)
            ctx.set_materialize_grads(False)
            ctx.mark_non_differentiable(
                *(values[position] for position in constant if isinstance(values[position], torch.Tensor))
            )
            return tuple(values)

        @staticmethod
        def backward(ctx: Any, *grads: Any) -> Any:
            tensors, saved = ctx.saved_tensors[: ctx.kept], ctx.saved_tensors[ctx.kept :]
            tangents = [
                _zeros(graph.outputs[position], *sizes_of_output)
                if grads[position] is None
                else grads[position]
                for position, sizes_of_output in zip(graph.differentiable, ctx.tangents, strict=True)
            ]
            fits = all(layout.fits(g) for layout, g in zip(graph.tangents, tangents, strict=True))
            if torch.is_grad_enabled() or not fits:
                remaining = iter(tensors)
                arguments = [next(remaining) if other is None else other for other in ctx.others]
                return _in_eager(graph, arguments, tangents)
            with torch.no_grad():
                arguments = [*saved, *ctx.rest, *tensors_all(graph.tangents, tangents)]
                gradients = backward(arguments)
                return _gradients(graph, gradients, ctx.gradients, len(ctx.others))

    return Compiled


def _zeros(layout: Layout, numbers: Sequence[int], sizes_of_leaves: Sequence[tuple[Any, Any]]) -> Any:
    """Return zeros for a missing gradient of an output."""
    tensors = [leaf.zeros(*facts) for leaf, facts in zip(layout.leaves, sizes_of_leaves, strict=True)]
    return layout.assemble(iter(tensors), iter(numbers))


def _gradients(graph: Desugared, flat: Sequence[Any], numbers: Sequence[int], inputs: int) -> tuple[Any, ...]:
    """Return the gradients of all inputs, made of the plain tensors ``flat`` and of ``numbers``."""
    gradients: list[Any] = [None] * inputs
    tensors, remaining_numbers = iter(flat), iter(numbers)
    for position, layout in zip(graph.trained, graph.gradients, strict=True):
        if layout is not None:
            gradients[position] = layout.assemble(tensors, remaining_numbers)
    return tuple(gradients)


def _in_eager(graph: Desugared, arguments: list[Any], tangents: Sequence[Any]) -> tuple[Any, ...]:
    """Return the gradients by running the captured graph again: for a second derivative or other tangents."""
    has_history = torch.is_grad_enabled()
    if not has_history:
        for position in graph.trained:
            arguments[position] = arguments[position].detach().requires_grad_()
    leaves = [arguments[position] for position in graph.trained]
    with torch_compat.DisableTorchFunctionSubclass(), torch.set_grad_enabled(graph.grad_mode):
        values = pytree.tree_leaves(graph.module(*arguments))
    differentiated = [values[position] for position in graph.differentiable]
    gradients = torch.autograd.grad(
        differentiated, leaves, tangents, allow_unused=True, create_graph=has_history
    )
    gradients_of_arguments: list[Any] = [None] * len(arguments)
    for position, gradient in zip(graph.trained, gradients, strict=True):
        gradients_of_arguments[position] = gradient
    return tuple(gradients_of_arguments)
