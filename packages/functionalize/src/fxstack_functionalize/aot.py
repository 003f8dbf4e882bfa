"""The public entry points on captured graphs: trace, and compile behind one callable."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import torch

from fxstack_functionalize.errors import CompilerContractError
from fxstack_functionalize.inputs import prepare
from fxstack_functionalize.options import AotOptions
from fxstack_functionalize.runtime import inference_wrapper, training_wrapper
from fxstack_functionalize.trace import Traced, TraceRequest, trace

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from torch.fx import GraphModule

    from fxstack_interchange import Partition, StageGraph

    Decompositions = Mapping[Any, Callable[..., Any]]
    Compiler = Callable[[GraphModule, Sequence[Any]], Callable[..., Any]]
    Partitioner = Callable[[StageGraph], Partition]


def trace_inference(
    gm: GraphModule,
    example_inputs: Sequence[Any],
    *,
    decompositions: Decompositions | None = None,
    keep_mutations: bool = True,
) -> StageGraph:
    """Return the functional ATen graph of ``gm``, without gradients (``Stage.FUNCTIONAL``).

    Tensors that ``gm`` owns become inputs, after its own. With ``keep_mutations`` the graph ends in
    ``aten.copy_(input, value)`` nodes for the inputs it changes; otherwise their new values are its first outputs.
    A user output that the caller makes from an input (itself, or a view of it) has the value None.

    Raises:
        UnsupportedGraphError: if the graph cannot be made functional exactly.
    """
    captured = prepare(gm, example_inputs)
    request = TraceRequest(gradients=False, keep_mutations=keep_mutations)
    with torch.no_grad():
        return trace(captured, request, decompositions).stage_graph


def trace_joint(
    gm: GraphModule,
    example_inputs: Sequence[Any],
    *,
    decompositions: Decompositions | None = None,
) -> StageGraph:
    """Return forward and backward of ``gm`` in one ATen graph (``Stage.JOINT``).

    Raises:
        UnsupportedGraphError: if the graph cannot be made functional exactly.
        ValueError: if no output of the graph requires a gradient.
    """
    captured = prepare(gm, example_inputs)
    with torch.enable_grad():
        traced = trace(captured, TraceRequest(gradients=True), decompositions)
    if not traced.trains:
        raise ValueError(
            "no output of the graph requires a gradient, so there is no joint graph.\n"
            "  fix: give example inputs that require one, or use trace_inference"
        )
    return traced.stage_graph


def aot(
    gm: GraphModule,
    example_inputs: Sequence[Any],
    *,
    fw_compiler: Compiler,
    bw_compiler: Compiler | None = None,
    inference_compiler: Compiler | None = None,
    partitioner: Partitioner,
    decompositions: Decompositions | None = None,
    options: AotOptions | None = None,
) -> Callable[..., Any]:
    """Compile ``gm`` ahead of time and return a callable with its signature and eager's exact semantics.

    Whether it trains is decided by the examples' ``requires_grad`` and the grad mode now. ``fw_compiler`` gets the
    forward graph, ``bw_compiler`` (default: the same) the backward at its first use, ``inference_compiler``
    (default: the same) a graph without gradients.

    Raises:
        UnsupportedGraphError: if the graph cannot be made functional exactly; nothing has run then.
    """
    options = options or AotOptions()
    captured = prepare(gm, example_inputs)
    wants_gradients = any(
        isinstance(spec.fake, torch.Tensor) and spec.fake.requires_grad for spec in captured.inputs
    )
    request = TraceRequest(
        gradients=wants_gradients,
        keep_mutations=options.keep_inference_mutations,
        replay_views=options.replay_views,
    )
    traced = trace(captured, request, decompositions)
    if traced.trains:
        return _train(traced, fw_compiler, bw_compiler or fw_compiler, partitioner, options)
    module = traced.stage_graph.graph_module
    with torch.no_grad():
        compiled = (inference_compiler or fw_compiler)(module, example_values(module))
    return inference_wrapper(traced, compiled, options)


def _train(
    traced: Traced,
    fw_compiler: Compiler,
    bw_compiler: Compiler,
    partitioner: Partitioner,
    options: AotOptions,
) -> Callable[..., Any]:
    partition = partitioner(traced.stage_graph)
    _check_partition(traced, partition)
    forward_module = partition.forward.graph_module
    backward_module = partition.backward.graph_module
    with torch.no_grad():
        forward = fw_compiler(forward_module, example_values(forward_module))

    def compile_backward() -> Callable[..., Any]:
        with torch.no_grad():
            return bw_compiler(backward_module, example_values(backward_module))

    if options.eager_backward_compile:
        backward = compile_backward()
        return training_wrapper(traced, partition, forward, lambda: backward, options)
    return training_wrapper(traced, partition, forward, compile_backward, options)


def _check_partition(traced: Traced, partition: Partition) -> None:
    count = traced.info.output_count
    ours = traced.stage_graph.signature.outputs[:count]
    theirs = partition.forward.signature.outputs[:count]
    if [spec.kind for spec in ours] != [spec.kind for spec in theirs]:
        raise CompilerContractError(
            "the partition's forward does not start with the joint graph's forward outputs.\n"
            f"  fix: keep the first {count} outputs in their order, then append what is saved"
        )


def example_values(module: GraphModule) -> list[Any]:
    """Return the fake tensors and symbols of a graph's placeholders."""
    return [node.meta["val"] for node in module.graph.find_nodes(op="placeholder")]
