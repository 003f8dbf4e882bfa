"""The public entry points for captured graphs: trace a graph, or trace and compile it into one callable."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from functools import partial
from typing import Any, Protocol

import torch
from torch.fx import GraphModule

from fxstack_functionalize.disk.cache_entry import CacheEntry, Store
from fxstack_functionalize.disk.restore import RecreatedGraphs, from_disk, make_runner
from fxstack_functionalize.errors import CompilerContractError
from fxstack_functionalize.metadata.wrapper_classes import is_wrapper, makes_wrappers
from fxstack_functionalize.operators.inlining import inline_operators
from fxstack_functionalize.options import AotOptions
from fxstack_functionalize.random.functional_random import is_random, use_generator, with_random_state
from fxstack_functionalize.region_bodies import with_regions
from fxstack_functionalize.regions.inline import inline_regions
from fxstack_functionalize.regions.table import SharedRegion
from fxstack_functionalize.runtime.wrapper import (
    Pair,
    Program,
    Stages,
    compile_pair,
    inference_wrapper,
    training_wrapper,
)
from fxstack_functionalize.subclasses.compiling import Compilers, compile_wrapped
from fxstack_functionalize.trace import Traced, trace
from fxstack_functionalize.tracer.inputs import Captured, TraceRequest, prepare
from fxstack_functionalize.tracer.symbols import has_symbols
from fxstack_interchange import OutputKind, Partition, StageGraph, verify

Decompositions = Mapping[Any, Callable[..., Any]]
Compiler = Callable[[GraphModule, Sequence[Any]], Callable[..., Any]]
Partitioner = Callable[[StageGraph], Partition]


class HasGraph(Protocol):
    """The result of ``fxstack_capture.capture``, or a ``StageGraph``: a graph with values of its inputs."""

    @property
    def graph_module(self) -> GraphModule: ...


def trace_inference(
    gm: GraphModule | HasGraph,
    example_inputs: Sequence[Any] | None = None,
    *,
    decompositions: Decompositions | None = None,
    keep_mutations: bool = True,
) -> StageGraph:
    """Return the functional ATen graph of ``gm``, without gradients (``Stage.FUNCTIONAL``).

    The parameters and buffers of ``gm`` become inputs behind its placeholders. With ``keep_mutations`` the
    graph ends in an ``aten.copy_(input, value)`` node for each mutated input; otherwise the new values are
    its first outputs. A user output that is an input or a view of an input has the value None: the caller
    makes this output. A captured graph needs no ``example_inputs``.

    Raises:
        UnsupportedGraphError: if no functional graph has exactly the semantics of ``gm``.
    """
    captured = _prepare(gm, example_inputs)
    request = TraceRequest(gradients=False, keep_mutations=keep_mutations)
    with torch.no_grad():
        return trace(captured, request, decompositions).stage_graph


def trace_joint(
    gm: GraphModule | HasGraph,
    example_inputs: Sequence[Any] | None = None,
    *,
    decompositions: Decompositions | None = None,
) -> StageGraph:
    """Return the forward and the backward of ``gm`` in one ATen graph (``Stage.JOINT``).

    A captured graph (what ``fxstack_capture.capture`` returns, or its stage graph) needs no ``example_inputs``.

    Raises:
        UnsupportedGraphError: if no functional graph has exactly the semantics of ``gm``.
        ValueError: if no output of the graph requires a gradient.
    """
    captured = _prepare(gm, example_inputs)
    with torch.enable_grad():
        traced = trace(captured, TraceRequest(gradients=True), decompositions)
    if not traced.trains:
        raise ValueError(
            "no output of the graph requires a gradient, so there is no joint graph.\n"
            "  fix: give example inputs that require one, or use trace_inference"
        )
    return traced.stage_graph


def _prepare(gm: GraphModule | HasGraph, examples: Sequence[Any] | None) -> Captured:
    """Make the inputs fake. Without ``examples``, take the example values of the captured graph."""
    graph = gm if isinstance(gm, GraphModule) else getattr(gm, "graph_module", gm)
    if isinstance(graph, GraphModule):
        graph = inline_operators(graph)
    if examples is None and isinstance(graph, GraphModule):
        nodes = graph.graph.find_nodes(op="placeholder")
        examples = getattr(gm, "example_inputs", None) or [node.meta.get("val") for node in nodes]
    return prepare(graph, examples if examples is not None else ())


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
    store: Store | None = None,
    region_partitioner: Partitioner | None = None,
    on_regions: Callable[[Sequence[SharedRegion]], None] | None = None,
) -> Callable[..., Any]:
    """Compile ``gm`` ahead of time. Return a callable with its signature and eager's exact semantics.

    ``requires_grad`` of the examples and the present grad mode decide whether the graph trains.
    ``fw_compiler`` compiles the forward; ``bw_compiler`` (default: ``fw_compiler``) the backward, at the
    first backward unless the backward has symbolic sizes; ``inference_compiler`` (default: ``fw_compiler``) a
    graph without gradients. If ``store`` has a program of the same graph, no compiler runs. A training
    program is stored when its backward has run.

    Raises:
        UnsupportedGraphError: if no functional graph has exactly the semantics of ``gm``. Nothing has run
            then.
    """
    options = options or AotOptions()
    if isinstance(gm, GraphModule):
        gm = inline_operators(gm)
    stages = _make_stages((fw_compiler, bw_compiler or fw_compiler), partitioner, decompositions, options)
    compile_graph = partial(
        aot,
        fw_compiler=fw_compiler,
        bw_compiler=bw_compiler,
        inference_compiler=inference_compiler,
        partitioner=partitioner,
        decompositions=decompositions,
        region_partitioner=region_partitioner,
        on_regions=on_regions,
    )
    if any(map(is_wrapper, example_inputs)) or makes_wrappers(gm):
        compile_plain = partial(compile_graph, options=options)
        gm = inline_regions(gm)
        return compile_wrapped(gm, example_inputs, Compilers(compile_plain, stages, decompositions, options))
    captured = prepare(gm, example_inputs)
    request = _request_of(options)
    if not options.functional_random:
        request = with_regions(request, decompositions, _checked(region_partitioner or partitioner), options)
    # Only a trace shows whether the graph draws. A pure graph has other inputs, so it is traced anew.
    if options.functional_random and is_random(trace(captured, request, decompositions).stage_graph):
        pure_module, inputs = with_random_state(gm, example_inputs)
        pure_options = replace(options, functional_random=False)
        return use_generator(compile_graph(pure_module, inputs, options=pure_options))

    def trace_graph() -> Traced:
        traced = trace(captured, request, decompositions)
        if options.verify:
            verify(traced.stage_graph)
        if request.regions is not None and on_regions is not None:
            on_regions(request.regions.report())
        return traced

    entry = CacheEntry(store, captured, request, options)
    restored = _restore(entry, trace_graph, stages, options)
    if restored is not None:
        return restored
    return _compile_traced(trace_graph(), stages, inference_compiler or fw_compiler, entry, options)


def _restore(
    entry: CacheEntry, trace_graph: Callable[[], Traced], stages: Stages, options: AotOptions
) -> Callable[..., Any] | None:
    """Return the callable of a stored program; None if there is none that can be used."""
    stored = entry.find()
    if stored is None:
        return None
    return from_disk(stored, entry, RecreatedGraphs(trace_graph, stages, make_runner()), options)


def _request_of(options: AotOptions) -> TraceRequest:
    """Return the request for a trace that ``aot`` compiles."""
    return TraceRequest(
        gradients=True,
        keep_mutations=options.keep_inference_mutations,
        replay_views=options.replay_views,
        whole_attention=options.whole_attention or (),
    )


def _compile_traced(
    traced: Traced, stages: Stages, inference: Compiler, entry: CacheEntry, options: AotOptions
) -> Callable[..., Any]:
    """Compile ``traced``, keep the program in ``entry``, and return the callable."""
    if not traced.trains:
        compiled = _compile(inference, traced.stage_graph)
        entry.keep_inference(traced.shell, compiled)
        return inference_wrapper(traced.shell, compiled, options)

    def compile_graphs() -> Pair:
        keep = partial(entry.keep_training, traced.shell)
        return compile_pair(traced, stages.partition(traced.stage_graph), stages, keep)

    return training_wrapper(Program(traced.shell, lambda: traced, compile_graphs, stages), options)


def _make_stages(
    compilers: tuple[Compiler, Compiler],
    partitioner: Partitioner,
    decompositions: Decompositions | None,
    options: AotOptions,
) -> Stages:
    """Return the caller's partitioner and compilers as functions that check the contract of each."""

    def compile_forward(partition: Partition) -> Callable[..., Any]:
        """Compile the forward. Verify both graphs of the partition first, with the option ``verify``."""
        if options.verify:
            verify(partition.forward)
            verify(partition.backward)
        return _compile(compilers[0], partition.forward)

    def compile_backward(backward: StageGraph) -> Callable[..., Any]:
        """Compile a backward graph: the partition's, or a variant for calls in which some gradients are missing."""
        if options.verify:
            verify(backward)
        return _compile(compilers[1], backward)

    def early(backward: StageGraph) -> bool:
        """Whether to compile the backward together with the forward, not at the first call of the backward."""
        # A compiler may assume facts about symbolic sizes. The caller of ``aot`` guards these facts when
        # ``aot`` returns.
        return options.eager_backward_compile or has_symbols(example_values(backward.graph_module))

    table = {} if decompositions is None else decompositions
    return Stages(_checked(partitioner), compile_forward, compile_backward, early, table)


def _checked(partitioner: Partitioner) -> Partitioner:
    """Return ``partitioner`` with a check that the forward has the outputs of the joint graph."""

    def cut(joint: StageGraph) -> Partition:
        partition = partitioner(joint)
        _check_partition(joint, partition)
        return partition

    return cut


def _compile(compiler: Compiler, stage: StageGraph) -> Callable[..., Any]:
    with torch.no_grad():
        return compiler(stage.graph_module, example_values(stage.graph_module))


def _check_partition(joint: StageGraph, partition: Partition) -> None:
    """Raise CompilerContractError if the partition's forward does not keep the outputs of the joint graph."""
    expected = [spec for spec in joint.signature.outputs if spec.kind is not OutputKind.GRADIENT]
    count = len(expected)
    if not isinstance(partition, Partition):
        raise CompilerContractError(
            f"the partitioner returned {type(partition).__name__}, not a Partition.\n"
            "  fix: return fxstack_interchange.Partition(forward, backward, ...)"
        )
    outputs = partition.forward.signature.outputs[:count]
    if [spec.kind for spec in expected] != [spec.kind for spec in outputs]:
        raise CompilerContractError(
            "the partition's forward does not start with the joint graph's forward outputs.\n"
            f"  fix: keep the first {count} outputs in their order, then append what is saved"
        )


def example_values(module: GraphModule) -> list[Any]:
    """Return the fake tensors and symbols of a graph's placeholders."""
    return [node.meta["val"] for node in module.graph.find_nodes(op="placeholder")]
