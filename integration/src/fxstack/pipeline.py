"""Compile a captured graph by the last three stages: functionalize, partition, inductor."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property, partial
from typing import Any, NamedTuple

from torch.fx import GraphModule

from fxstack.disk import ProgramStore, program_store
from fxstack.log import CompileLog
from fxstack.refusals import can_repeat, eager_error
from fxstack.safe import Trial
from fxstack.settings import CompileOptions, with_torch_settings
from fxstack_capture import disable
from fxstack_capture.driver.backend import WANTS_FAKES
from fxstack_capture.driver.reports.compilation import compiled_later, present_compilation
from fxstack_functionalize import AotOptions, UnsupportedGraphError, aot
from fxstack_functionalize.regions.inline import inline_regions
from fxstack_inductor import NoCompilerError, compile_graph, decompositions
from fxstack_inductor.errors import CudaError, NotLowered, TritonMissing
from fxstack_inductor.targets.all_targets import devices_with_attention
from fxstack_interchange import Partition, StageGraph
from fxstack_interchange.collector import held_signals, paused_collector
from fxstack_interchange.passes import StoppedAfterPass, working_on
from fxstack_interchange.user_warnings import warn_user
from fxstack_partition import partition

Compiled = Callable[..., Any]
Backend = Callable[[GraphModule, Sequence[Any]], Compiled]
StageCompiler = Callable[[GraphModule, Sequence[Any]], Compiled]


UNAVAILABLE = (NoCompilerError, TritonMissing, CudaError)
"""Errors of missing tools: eager torch runs the graph if the machine lacks a compiler, Triton or a driver."""


def make_backend(options: CompileOptions, log: CompileLog) -> Backend:
    """Return the full pipeline as a backend: ``(captured graph, example inputs) -> callable``.

    Without a C compiler (for a GPU: without Triton or a working driver), or if a graph cannot be
    functionalized, eager torch runs the captured graph, after one warning with the reason and a fix.
    """

    def inductor(graph_module: GraphModule, example_inputs: Sequence[Any]) -> Compiled:
        """Compile one captured graph. A graph that a stage does not support runs in eager, with a warning."""
        graph = Compilation(with_torch_settings(options), log, log.next_graph())
        try:
            compilers = Compilers(graph.compile_forward, graph.compile_backward, graph.compile_inference)
            store = program_store(graph.options, log, graph.number, graph.repeats)
            compiled = graph.ahead_of_time(graph_module, example_inputs, compilers, LateTable(), store)
        except (UnsupportedGraphError, *UNAVAILABLE) as error:
            return _run_in_eager(graph_module, example_inputs, error)
        except StoppedAfterPass as stopped:
            return _warn_of_stop(graph_module, stopped)
        if options.mode != "safe":
            return compiled
        return Trial(compiled, eager_backend(graph_module, ()), graph.number, log.on_choice)

    setattr(inductor, WANTS_FAKES, True)
    return inductor


def make_aot_eager_backend(
    options: CompileOptions, log: CompileLog, table: Mapping[Any, Callable[..., Any]] | None = None
) -> Backend:
    """Return a backend that functionalizes and partitions a captured graph, and runs the resulting graphs in eager torch.

    ``table`` has the decompositions to apply; the default is none.
    """

    def aot_eager(graph_module: GraphModule, example_inputs: Sequence[Any]) -> Compiled:
        """Trace and partition one captured graph, and run the parts in eager torch."""

        def run_in_eager(graph: GraphModule, _inputs: Sequence[Any]) -> Compiled:
            return eager_backend(graph, _inputs)

        graph = Compilation(options, log, log.next_graph())
        try:
            compilers = Compilers(run_in_eager, run_in_eager, run_in_eager)
            return graph.ahead_of_time(graph_module, example_inputs, compilers, table)
        except UnsupportedGraphError as error:
            return _run_in_eager(graph_module, example_inputs, error)
        except StoppedAfterPass as stopped:
            return _warn_of_stop(graph_module, stopped)

    setattr(aot_eager, WANTS_FAKES, True)
    return aot_eager


def eager_backend(graph_module: GraphModule, _example_inputs: Sequence[Any]) -> Compiled:
    """Return the captured graph itself as a callable in eager torch."""
    # torch's operator of a shared region refuses writes and some nested operators.
    run: Compiled = inline_regions(graph_module).forward
    return run


setattr(eager_backend, WANTS_FAKES, True)


def _run_in_eager(graph_module: GraphModule, example_inputs: Sequence[Any], reason: Exception) -> Compiled:
    """Return the graph as a callable of eager torch, after a warning with ``reason``."""
    text = str(reason).rstrip(".")
    warn_user(f"fxstack: {text}. The captured graph runs in eager torch.", UserWarning)
    return eager_backend(graph_module, example_inputs)


def _warn_of_stop(graph_module: GraphModule, stopped: StoppedAfterPass) -> Compiled:
    warn_user(f"fxstack: {stopped}. The graph runs in eager torch.", UserWarning)
    return eager_backend(graph_module, ())


class LateTable(Mapping[Any, Callable[..., Any]]):
    """Inductor's decompositions, built on demand: torch's take 70 ms, and stored programs need none."""

    @cached_property
    def _table(self) -> Mapping[Any, Callable[..., Any]]:
        return decompositions()

    def __getitem__(self, operator: object) -> Callable[..., Any]:
        return self._table[operator]

    def __iter__(self) -> Iterator[Any]:
        return iter(self._table)

    def __len__(self) -> int:
        return len(self._table)


class Compilers(NamedTuple):
    """The compilers of the graphs of a training step, and of a graph without gradients."""

    forward: StageCompiler
    backward: StageCompiler
    inference: StageCompiler


@dataclass(frozen=True, slots=True)
class Compilation:
    """The compilation of one captured graph. ``number`` is its number in the log."""

    options: CompileOptions
    log: CompileLog
    number: int
    repeats: list[bool] = field(default_factory=list)
    """For each graph of a call except the backward, whether the graph may run twice (``can_repeat``)."""
    context: object = field(default_factory=present_compilation)
    """The compilation of the frame, to which the backward belongs too."""

    def compile_forward(self, graph_module: GraphModule, example_inputs: Sequence[Any]) -> Compiled:
        self.repeats.append(can_repeat(graph_module))
        return self.compile_stage(graph_module, example_inputs)

    def compile_inference(self, graph_module: GraphModule, example_inputs: Sequence[Any]) -> Compiled:
        """Compile a graph without a backward."""
        self.repeats.append(can_repeat(graph_module))
        compiled = self.compile_stage(graph_module, example_inputs, inference=True)
        # With frozen weights it computes constants and may compile during user calls, with the frame hook on.
        return disable(compiled) if self.options.inductor.freezing else compiled

    def on_error(self, failure: Exception, eager: Callable[..., Any], args: tuple[Any, ...]) -> Any:
        """Raise eager's exception, if the graph can run again."""
        results = eager_error(failure, eager, args, repeats=all(self.repeats))
        if self.options.inductor.raise_failures and not isinstance(failure, OverflowError):
            raise failure
        return results

    def compile_stage(
        self,
        graph_module: GraphModule,
        example_inputs: Sequence[Any],
        *,
        boxed: bool = False,
        inference: bool = False,
    ) -> Compiled:
        """Compile by inductor. A graph that inductor cannot express runs in eager torch, after a warning."""
        inductor = self.options.inductor
        inductor = inductor if inference else replace(inductor, keep_memory=False)
        try:
            with self.log.measure("inductor", self.number):
                compiled = compile_graph(
                    graph_module,
                    example_inputs,
                    inductor,
                    boxed=boxed,
                    inference=inference,
                    on_failure=partial(self.log.on_failure, self.number),
                    check_arguments=False,  # guards have checked them
                )
        except NotLowered as error:
            return _run_in_eager(graph_module, example_inputs, error)
        role = "backward" if boxed else "inference" if inference else "forward"
        return self.log.on_compiled(self.number, role, graph_module, compiled)

    def compile_backward(self, graph_module: GraphModule, example_inputs: Sequence[Any]) -> Compiled:
        """Compile a backward. The forward may have run, so without a compiler only this graph runs in eager.

        The backward empties its list of arguments, so that saved tensors die after their last use.
        """
        try:
            place = self.log.captured_of(self.number).place
            with held_signals(), paused_collector(), working_on(place), compiled_later(self.context):
                return self.compile_stage(graph_module, example_inputs, boxed=True)
        except UNAVAILABLE as error:
            return _run_in_eager(graph_module, example_inputs, error)
        except StoppedAfterPass as stopped:
            return _warn_of_stop(graph_module, stopped)

    def cut(self, joint: StageGraph) -> Partition:
        """Partition a joint graph, and log the joint graph and both parts."""
        self.log.keep(self.number, joint)
        with self.log.measure("partition", self.number):
            parts = partition(joint, self.options.partitioner, self.options.partition)
        self.log.keep(self.number, parts.forward)
        self.log.keep(self.number, parts.backward)
        self.log.on_partition(self.number, parts)
        return parts

    def cut_region(self, joint: StageGraph) -> Partition:
        """Partition the joint graph of a shared region."""
        with self.log.measure("partition", self.number):
            return partition(joint, self.options.partitioner, self.options.partition)

    def _functionalize_options(self, has_decompositions: bool) -> AotOptions:
        """Return the options of functionalize, with the defaults that depend on other stages."""
        options = self.options.functionalize
        attention = options.whole_attention
        if attention is None and has_decompositions:
            attention = devices_with_attention(self.options.inductor.target)
        return replace(
            options,
            on_error=options.on_error or self.on_error,
            whole_attention=attention,
            share_regions=options.share_regions and not self._needs_whole_graph(),
        )

    def _needs_whole_graph(self) -> bool:
        """Whether an option asks for decisions about the whole graph, from which a shared region would hide its nodes.

        A memory budget and the program's own partitioner are about the whole step; frozen weights differ between the
        calls of a region.
        """
        return (
            self.options.inductor.freezing
            or self.options.partitioner != CompileOptions().partitioner
            or (self.options.partition.budget, self.options.partition.time_overhead) != (None, None)
        )

    def ahead_of_time(
        self,
        graph_module: GraphModule,
        example_inputs: Sequence[Any],
        compilers: Compilers,
        table: Mapping[Any, Callable[..., Any]] | None,
        store: ProgramStore | None = None,
    ) -> Compiled:
        """Functionalize, partition and compile a captured graph; return the callable and log functionalize's own seconds."""
        inner = ("partition", "inductor")
        before = sum(map(self.log.seconds, inner))
        start = time.perf_counter()
        compiled = aot(
            graph_module,
            example_inputs,
            # All but the last may be called from user calls and backward(), with the frame hook on.
            fw_compiler=disable(compilers.forward),
            bw_compiler=disable(compilers.backward),
            partitioner=disable(self.cut),
            inference_compiler=compilers.inference,
            decompositions=table,
            options=self._functionalize_options(table is not None),
            store=store,
            region_partitioner=disable(self.cut_region),
            on_regions=partial(self.log.on_regions, self.number),
        )
        spent = sum(map(self.log.seconds, inner)) - before
        seconds = time.perf_counter() - start - spent
        self.log.add_time("functionalize", self.number, seconds)
        return compiled
