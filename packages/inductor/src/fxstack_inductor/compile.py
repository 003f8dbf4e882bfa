"""The entry points: lower, schedule, generate, load."""

from __future__ import annotations

import ctypes
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import torch
from torch.fx import Interpreter

from fxstack_inductor.codegen.c import c_source
from fxstack_inductor.codegen.wrapper import HostProgram, host_program
from fxstack_inductor.errors import IndexOutOfRange
from fxstack_inductor.lower.graph import lower_graph
from fxstack_inductor.lower.rules import RULES
from fxstack_inductor.options import InductorOptions, options_from_environment
from fxstack_inductor.runtime.arena import Workspace, shared_pool
from fxstack_inductor.runtime.dropout import DRAW, bernoulli
from fxstack_inductor.runtime.loader import load_functions
from fxstack_inductor.schedule.outvariants import draws_bernoulli
from fxstack_inductor.schedule.plan import KernelStep, Plan, plan
from fxstack_inductor.triton_target import (
    LoweredTriton,
    device_callable,
    load_triton,
    lower_triton,
    on_cuda,
)

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from torch.fx import GraphModule


@dataclass(frozen=True)
class Lowered:
    """What a graph was lowered to: the schedule, the C file and the host program's source."""

    plan: Plan
    c: str
    program: HostProgram

    @property
    def host(self) -> str:
        return self.program.source


def lower(
    graph_module: GraphModule,
    example_inputs: Sequence[Any] = (),  # noqa: ARG001 - the calling convention of backends
    options: InductorOptions | None = None,
    *,
    target: str = "cpu",
) -> Lowered | LoweredTriton:
    """The generated code for ``graph_module``, without compiling it, on any machine.

    ``target`` is ``"cpu"`` (C) or ``"cuda"``, also as ``"cuda:sm_90"`` (Triton).

    Raises:
        ValueError: another target.
    """
    chosen = options_from_environment() if options is None else options
    if target.partition(":")[0] == "cuda":
        return lower_triton(graph_module, chosen)
    if target != "cpu":
        raise ValueError(f"target {target!r}: known are 'cpu' and 'cuda' (also as 'cuda:sm_90')")
    return _lower_c(graph_module, chosen)


def _lower_c(graph_module: GraphModule, chosen: InductorOptions) -> Lowered:
    program = lower_graph(graph_module, RULES, chosen)
    scheduled = plan(program, chosen)
    kernels = [step.kernel for step in scheduled.steps if isinstance(step, KernelStep)]
    random = any(draws_bernoulli(step) for step in scheduled.steps)
    source = c_source(kernels, chosen, random=random)
    host = host_program(scheduled, source.functions)
    text = source.text if kernels or random else ""
    return Lowered(scheduled, text, host)


def compile_graph(
    graph_module: GraphModule,
    example_inputs: Sequence[Any] = (),  # noqa: ARG001 - the calling convention of backends
    options: InductorOptions | None = None,
) -> Callable[..., tuple[Any, ...]]:
    """Compile a functional ATen graph whose nodes carry fake values in ``meta["val"]``.

    Returns a callable of the graph's inputs that returns the graph's (flat, tuple) output. Inputs must have the dtypes, strides
    and devices that the graph was traced with; sizes too, except symbolic ones.

    Raises:
        NoCompilerError: if kernels are needed and there is no C compiler.
        TritonMissing: if the graph computes on CUDA and Triton is not installed.
        UnsupportedGraphError: if the graph is not functional.
    """
    chosen = options_from_environment() if options is None else options
    if (chosen.target or ("cuda" if on_cuda(graph_module) else "cpu")) == "cuda":
        return device_callable(*load_triton(graph_module, chosen), chosen)
    lowered = _lower_c(graph_module, chosen)
    program = lowered.program
    workspace = Workspace(program.slots, program.windows, program.symbols, shared_pool())
    error = ctypes.c_int32(0)
    namespace = {
        **program.constants,
        "take": workspace.take,
        "give": workspace.give,
        "error": error,
        "error_address": ctypes.addressof(error),
        "out_of_range": IndexOutOfRange,
    }
    if lowered.c:
        namespace |= load_functions(lowered.c, program.arguments, chosen)
    if DRAW in program.arguments:
        namespace["bernoulli"] = bernoulli(namespace[DRAW])
    code = compile(program.source, f"<fxstack {graph_module._get_name()}>", "exec")
    exec(code, namespace)  # noqa: S102 - the program was generated just above
    return _callable(graph_module, lowered, namespace["call"], error)


def _callable(
    graph_module: GraphModule, lowered: Lowered, call: Callable[..., Any], error: ctypes.c_int32
) -> Callable[..., tuple[Any, ...]]:
    below_autograd = torch._C._AutoDispatchBelowAutograd

    def run(*args: Any) -> tuple[Any, ...]:
        try:
            with below_autograd():
                return call(*args)  # type: ignore[no-any-return]
        except IndexOutOfRange:
            error.value = 0
            # Nothing has been written to an input yet: eager raises its own error.
            with torch.no_grad():
                interpreter = Interpreter(graph_module)
                interpreter.extra_traceback = False
                return tuple(interpreter.run(*args))

    run.lowered = lowered  # type: ignore[attr-defined]
    return run
