"""The entry points of the package: ``lower`` returns generated code, ``compile_graph`` a callable."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import partial
from typing import Any

from torch.fx import GraphModule

from fxstack_inductor.arguments import add_check
from fxstack_inductor.failures import NO_DEFECTS, Failure, run_by_aten, tell_defects
from fxstack_inductor.freezing.frozen import freeze
from fxstack_inductor.options import InductorOptions, options_from_environment
from fxstack_inductor.repro.script import compile_and_write
from fxstack_inductor.targets.all_targets import target_named, target_of
from fxstack_inductor.targets.target import Compiled, LoweredGraph


def lower(
    graph_module: GraphModule,
    example_inputs: Sequence[Any] = (),  # noqa: ARG001 - the calling convention of backends
    options: InductorOptions | None = None,
    *,
    target: str = "cpu",
    boxed: bool = False,
) -> LoweredGraph:
    """Return the generated code of ``graph_module`` without compiling the code, on any machine.

    ``target`` is ``"cpu"`` (C) or ``"cuda"`` (Triton), also ``"cuda:sm_90"`` or ``"cuda:H200"``; then
    ``report()`` of the result predicts times on that GPU. ``boxed``: the code is that of ``compile_graph(boxed=True)``.

    Raises:
        ValueError: another target.
    """
    chosen = options_from_environment() if options is None else options
    return target_named(target).lower(graph_module, chosen, target, boxed=boxed)


def compile_graph(
    graph_module: GraphModule,
    example_inputs: Sequence[Any] = (),  # noqa: ARG001 - the calling convention of backends
    options: InductorOptions | None = None,
    *,
    boxed: bool = False,
    inference: bool = False,
    on_failure: Callable[[Failure], None] | None = None,
    check_arguments: bool = True,
) -> Compiled:
    """Compile a functional ATen graph whose nodes carry fake values in ``meta["val"]``.

    Return a callable of the graph's inputs that returns the graph's (flat, tuple) output. With ``boxed``, the
    callable takes a list of inputs and empties the list, so that an input without other references is freed
    after its last use. Inputs must have the traced dtypes, strides, devices and (except symbolic ones) sizes.
    Each call checks these and raises ``ArgumentError``; ``check_arguments=False`` is for callers that have
    checked already. ``inference``: nothing differentiates the results, so ``options.freezing`` applies.
    ``on_failure``: after a defect of this package, warn, call ``on_failure``, and return a callable (never
    boxed) that runs the graph by ATen's operators. Without ``on_failure``, or with
    ``options.raise_failures``, raise the exception.

    Raises:
        NoCompilerError: kernels are needed and there is no C compiler.
        TritonMissing: the graph computes on CUDA and Triton is not installed.
        UnsupportedGraphError: the graph is not functional.
        CompilerFailedError: the C compiler rejects the generated code.
    """
    chosen = options_from_environment() if options is None else options
    compiled = partial(_compiled, graph_module, chosen, boxed=boxed, inference=inference)
    report = None if chosen.raise_failures else on_failure
    result = compiled() if report is None else _or_by_aten(graph_module, compiled, report)
    return add_check(graph_module, result) if check_arguments else result


def _or_by_aten(
    graph_module: GraphModule, compiled: Callable[..., Compiled], on_failure: Callable[[Failure], None]
) -> Compiled:
    """Return ``compiled()``. After a defect, call ``on_failure`` and return the graph run by ATen instead.

    Only ``compile_graph`` calls this function, if its caller has given ``on_failure``.
    """
    try:
        result = compiled(on_failure)
    except NO_DEFECTS:
        raise
    except Exception as error:
        return run_by_aten(graph_module, error, on_failure)
    tell_defects(graph_module, result, on_failure)
    return result


def _compiled(
    graph_module: GraphModule,
    chosen: InductorOptions,
    on_failure: Callable[[Failure], None] | None = None,
    *,
    boxed: bool,
    inference: bool,
) -> Compiled:
    """Compile by the target of the graph.

    ``compile_graph`` calls this function. Depending on the options, the result is frozen, or writes a
    script that reproduces the graph.
    """
    if chosen.freezing and inference and not boxed and target_of(graph_module).freezes:
        thawed = replace(chosen, freezing=False)
        compiler = partial(
            compile_graph, options=thawed, inference=True, on_failure=on_failure, check_arguments=False
        )
        return freeze(graph_module, compiler, channels_last=chosen.channels_last)
    if not inference:  # sums of a gradient over channels-last images would have few programs
        chosen = replace(chosen, channels_last=False)
    target = target_of(graph_module, chosen.target)
    if target.writes_repros and chosen.repro_dir is not None:
        return compile_and_write(graph_module, chosen, chosen.repro_dir, boxed=boxed)
    return target.load(graph_module, chosen, boxed=boxed)
