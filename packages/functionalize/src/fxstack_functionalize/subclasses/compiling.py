"""Compile a captured graph over wrapper subclasses: desugar it, compile the result, rebuild wrappers."""

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
from fxstack_functionalize.runtime.training import Stages
from fxstack_functionalize.subclasses.desugar import Desugared, flat_module
from fxstack_functionalize.subclasses.layout import Layout, flatten_all, layout_of, leaves_all, rebuild_all
from fxstack_functionalize.subclasses.training import trained_callable
from fxstack_functionalize.torch_compat import FakeTensorMode, pytree
from fxstack_functionalize.trace import Traced, trace
from fxstack_functionalize.tracer.inputs import TraceRequest, fake_mode_of, prepare, to_fake
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
        flat = map(_detach, flatten_all(graph.inputs, args))
        results = rebuild_all(outputs, compiled(*flat))
        for position in counted:  # the versions of its inner tensors are counted by the compiled graph
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
    # A gradient may have another class and more tensors than its input: extra ones belong to the last tensor.
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
    """Return for each value the positions of its plain tensors among those of all values."""
    ends = list(accumulate(len(layout.leaves) for layout in layouts))
    return [range(end - len(layout.leaves), end) for end, layout in zip(ends, layouts, strict=True)]


def guarded_by_eager(run: Callable[..., Any], module: GraphModule, options: AotOptions) -> Callable[..., Any]:
    """Return ``run`` with eager under function transforms, and with ``options.on_error`` for exceptions."""

    def call(*args: object) -> Any:
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
    return UnsupportedGraphError(
        construct,
        why="there is no flat form of it that is known to be exact",
        fix="run the graph in eager, or take the tensors out of their wrappers before",
    )
