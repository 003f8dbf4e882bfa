"""A captured graph through the last three layers: functionalize, partition, inductor."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Sequence
from typing import Any

from fxstack_functionalize import aot
from fxstack_inductor import NoCompilerError, compile_graph, decompositions
from fxstack_interchange import Partition, StageGraph
from fxstack_partition import partition
from torch.fx import GraphModule

from fxstack.log import CompileLog
from fxstack.options import CompileOptions

Compiled = Callable[..., Any]
Backend = Callable[[GraphModule, Sequence[Any]], Compiled]
StageCompiler = Callable[[GraphModule, Sequence[Any]], Compiled]


def make_backend(options: CompileOptions, log: CompileLog) -> Backend:
    """The full pipeline as a backend: ``(captured graph, example inputs) -> callable``.

    Without a C compiler the captured graph is executed by eager torch, after one warning that says what to
    install.
    """

    def inductor(graph_module: GraphModule, example_inputs: Sequence[Any]) -> Compiled:
        compiler = _compiler(options, log, log.next_graph())
        try:
            return _ahead_of_time(graph_module, example_inputs, options, log, compiler, decompositions())
        except NoCompilerError as error:
            warnings.warn(f"fxstack: {error} The captured graph runs in eager torch.", stacklevel=2)
            return graph_module.forward

    return inductor


def make_aot_eager_backend(options: CompileOptions, log: CompileLog) -> Backend:
    """Functionalized and partitioned, then executed by eager torch node by node."""

    def aot_eager(graph_module: GraphModule, example_inputs: Sequence[Any]) -> Compiled:
        def run_in_eager(graph: GraphModule, _inputs: Sequence[Any]) -> Compiled:
            return graph.forward

        log.next_graph()
        return _ahead_of_time(graph_module, example_inputs, options, log, run_in_eager, None)

    return aot_eager


def eager_backend(graph_module: GraphModule, _example_inputs: Sequence[Any]) -> Compiled:
    """The captured graph itself, executed by eager torch."""
    return graph_module.forward


def _compiler(options: CompileOptions, log: CompileLog, graph: int) -> StageCompiler:
    def compile_one(graph_module: GraphModule, example_inputs: Sequence[Any]) -> Compiled:
        with log.measure("inductor", graph):
            return compile_graph(graph_module, example_inputs, options.inductor)

    return compile_one


def _ahead_of_time(
    graph_module: GraphModule,
    example_inputs: Sequence[Any],
    options: CompileOptions,
    log: CompileLog,
    compiler: StageCompiler,
    table: dict[Any, Callable[..., Any]] | None,
) -> Compiled:
    graph = log.graph_count - 1

    def cut(joint: StageGraph) -> Partition:
        log.keep(graph, joint)
        with log.measure("partition", graph):
            parts = partition(joint, options.partitioner)
        log.keep(graph, parts.forward)
        log.keep(graph, parts.backward)
        return parts

    with log.measure("backend", graph):
        return aot(
            graph_module,
            example_inputs,
            fw_compiler=compiler,
            bw_compiler=compiler,
            inference_compiler=compiler,
            partitioner=cut,
            decompositions=table,
        )
