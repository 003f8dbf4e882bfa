"""Compile a captured graph over wrapper subclasses: desugar it, compile the result, rebuild wrappers.

A training graph runs as one autograd node whose inputs and outputs are wrappers.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from itertools import accumulate
from typing import Any

import torch
from torch.fx import GraphModule

from fxstack_functionalize import torch_compat
from fxstack_functionalize.errors import FunctionalizeError, TraceFailedError, UnsupportedGraphError
from fxstack_functionalize.metadata.records import OutputSource
from fxstack_functionalize.options import AotOptions
from fxstack_functionalize.runtime.backward.backwards import LazyBackward
from fxstack_functionalize.runtime.calling import FORWARD, as_boxed, check_results, without_autocast
from fxstack_functionalize.runtime.wrapper import Stages
from fxstack_functionalize.subclasses.desugar import Desugared, flat_module
from fxstack_functionalize.subclasses.layout import (
    Layout,
    Plain,
    assemble_all,
    flatten_all,
    layout_of,
    leaves_all,
    numbers_all,
    rebuild_all,
    tensors_all,
)
from fxstack_functionalize.torch_compat import FakeTensorMode, pytree
from fxstack_functionalize.trace import Traced, trace
from fxstack_functionalize.tracer.inputs import Captured, TraceRequest, fake_mode_of, prepare, to_fake
from fxstack_functionalize.tracer.symbols import is_evaluable, make_filler
from fxstack_interchange import InputKind, InputSpec, OutputKind, OutputSpec, Stage, StageGraph


@dataclass(frozen=True, slots=True)
class Compilers:
    """The caller's compilers: for a graph without wrappers, and for the stages of a joint graph."""

    plain: Callable[[GraphModule, Sequence[Any]], Callable[..., Any]]
    stages: Stages
    decompositions: Any
    options: AotOptions


def compile_wrapped(
    gm: GraphModule, example_inputs: Sequence[Any], compiling: Compilers
) -> Callable[..., Any]:
    """Return a callable with the signature of ``gm``, whose example inputs may be wrappers over fakes.

    Raises:
        UnsupportedGraphError: if the graph owns tensors, or raises on the examples.
    """
    try:
        return _compile_flat(gm, example_inputs, compiling)
    except FunctionalizeError:
        raise
    except Exception as error:
        raise TraceFailedError(error) from error


def _compile_flat(gm: GraphModule, example_inputs: Sequence[Any], compiling: Compilers) -> Callable[..., Any]:
    """Convert the graph to plain tensors and compile it, for training if an output requires a gradient."""
    if any(node.op in ("get_attr", "call_module") for node in gm.graph.nodes):
        raise _unsupported("a graph over wrapper subclasses owns tensors or graphs")
    layouts = tuple(layout_of(value) for value in example_inputs)
    plain_values = [_detach(value) for value in flatten_all(layouts, example_inputs)]
    mode = fake_mode_of(plain_values)
    flat = [to_fake(mode, value) for value in plain_values]
    # Also without grad mode: a graph that starts without it may turn it on.
    trained = tuple(
        position
        for position, value in enumerate(example_inputs)
        if isinstance(value, torch.Tensor) and value.requires_grad
    )
    graph = Desugared(gm, layouts, trained, torch.is_grad_enabled())
    graph.differentiable = _probe(graph, flat, mode)
    if graph.differentiable:
        return _training(graph, flat, mode, compiling)
    module = flat_module(graph.forward, len(flat))
    return _inference(graph, compiling.plain(module, flat), compiling.options)


def _detach(value: object) -> Any:
    """Return a tensor without its history, for a compiled graph that must not record gradients."""
    if isinstance(value, torch.Tensor) and value.requires_grad:
        with torch.no_grad():
            return value.detach()
    return value


def _probe(graph: Desugared, flat: Sequence[Any], mode: FakeTensorMode) -> tuple[int, ...]:
    """Run the graph once on fakes. Return the outputs that require a gradient."""
    rebuilt = graph.rebuild_leaves(flat)
    with mode:
        values = graph.run(rebuilt)
    return tuple(
        position
        for position, value in enumerate(values)
        if isinstance(value, torch.Tensor) and value.requires_grad
    )


def _inference(graph: Desugared, compiled: Callable[..., Any], options: AotOptions) -> Callable[..., Any]:
    """Return the callable that takes wrappers apart, calls ``compiled`` and rebuilds the outputs."""
    outputs, sources, spec = graph.outputs, graph.sources, graph.spec
    counted = [position for position, count in graph.writes.items() for _ in range(count)]

    def run(*args: object) -> Any:
        """Call the compiled graph with the plain tensors inside of the arguments, and rebuild the wrappers."""
        flat = map(_detach, flatten_all(graph.inputs, args))
        results = rebuild_all(outputs, compiled(*flat))
        for position in counted:  # the compiled graph counts only the versions of inner tensors
            torch.autograd.graph.increment_version(args[position])
        values = [
            value if source is None else args[source] for value, source in zip(results, sources, strict=True)
        ]
        return pytree.tree_unflatten(values, spec)

    return guarded_by_eager(run, graph.module, options)


def _training(
    graph: Desugared, flat: Sequence[Any], mode: FakeTensorMode, compiling: Compilers
) -> Callable[..., Any]:
    """Trace values and gradients of the graph as one joint graph, and return its callable."""
    with mode, torch.no_grad():
        tangents = [leaf.zeros(leaf.size, leaf.stride) for leaf in leaves_all(graph.tangents)]
    with torch.no_grad():
        module = flat_module(graph.joint, len(flat) + len(tangents))
        captured = prepare(module, [*flat, *tangents])
        request = TraceRequest(gradients=False, keep_mutations=False, replay_views=False)
        traced = trace(captured, request, compiling.decompositions)
    traced = _as_joint(graph, traced, len(flat))
    run = trained_callable(graph, traced, captured, compiling.stages)
    return guarded_by_eager(run, graph.module, compiling.options)


def _as_joint(graph: Desugared, traced: Traced, inputs: int) -> Traced:
    """Return the functional graph of values and gradients with the signature of a joint graph."""
    stage = traced.stage_graph
    count = len(leaves_all(graph.outputs))
    if traced.info.mutated or any(
        output.source not in (OutputSource.VALUE, OutputSource.CONSTANT) for output in traced.info.outputs
    ):
        raise _unsupported("a training graph over wrapper subclasses changes or returns its inputs")
    names = [spec.name for spec in stage.signature.outputs]
    spans = _spans(graph.outputs)
    owners = [tensor for output in graph.differentiable for tensor in spans[output]]
    inputs_of_stage = stage.signature.inputs
    new_inputs = (
        *inputs_of_stage[:inputs],
        *(
            InputSpec(InputKind.TANGENT, spec.name, names[owner])
            for spec, owner in zip(inputs_of_stage[inputs:], owners, strict=True)
        ),
    )
    tensors = _spans(graph.inputs)
    # A gradient may have another class and more tensors than its input. Further tensors count as gradients of
    # the input's last tensor.
    targets = [
        inputs_of_stage[tensors[position][min(offset, len(tensors[position]) - 1)]].name
        for position, gradient in zip(graph.trained, graph.gradients, strict=True)
        if gradient is not None
        for offset in range(len(gradient.leaves))
    ]
    new_outputs = (
        *(OutputSpec(OutputKind.USER_OUTPUT, name) for name in names[:count]),
        *(
            OutputSpec(OutputKind.GRADIENT, name, target)
            for name, target in zip(names[count:], targets, strict=True)
        ),
    )
    signature = replace(stage.signature, stage=Stage.JOINT, inputs=new_inputs, outputs=new_outputs)
    joint = StageGraph(stage.graph_module, signature)
    return replace(traced, stage_graph=joint)


def _spans(layouts: Sequence[Layout]) -> list[range]:
    """Return for each value the positions of its plain tensors in the list of the plain tensors of all values."""
    ends = list(accumulate(len(layout.leaves) for layout in layouts))
    return [range(end - len(layout.leaves), end) for end, layout in zip(ends, layouts, strict=True)]


def guarded_by_eager(run: Callable[..., Any], module: GraphModule, options: AotOptions) -> Callable[..., Any]:
    """Return ``run`` with two fallbacks: ``module`` in eager under function transforms, ``options.on_error``
    for exceptions.
    """

    def call(*args: object) -> Any:
        """Run the compiled graph.

        Run the module in eager under a transform, and after an error if ``on_error`` says so.
        """
        if torch_compat.are_functorch_transforms_active():
            return module(*args)
        if options.on_error is None:
            return run(*args)
        try:
            return run(*args)
        except Exception as error:
            failure = error
        return options.on_error(failure, module.forward, args)

    return call


def _unsupported(construct: str) -> UnsupportedGraphError:
    """Return the error about a graph over wrapper subclasses that has ``construct``, for example owned tensors."""
    return UnsupportedGraphError(
        construct,
        why="there is no flat form of it that is known to be exact",
        fix="run the graph in eager, or take the tensors out of their wrappers before",
    )


# Limits: a result may share memory with an argument, but is no view for autograd (_is_view). The backward
# keeps the arguments of the graph, because the graph runs again in eager for create_graph=True and for
# gradients of another class or metadata.


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

    The function returns a tuple of four: strides of the outputs' plain tensors; symbolic numbers of the
    outputs; symbolic numbers of the gradients; and for each differentiable output (symbolic numbers, (size,
    stride) of each plain tensor).
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
            """Return the gradients of the arguments.

            A second differentiation, or a tangent of another layout, runs in eager.
            """
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
