"""Graphs on CPU: C kernels, and a host program that is C beside them, or Python."""

from __future__ import annotations

import ctypes
from dataclasses import dataclass, replace
from functools import cached_property
from typing import TYPE_CHECKING, Any

import torch
from torch.fx import Interpreter

from fxstack_inductor.codegen.c import c_source
from fxstack_inductor.codegen.native import NativeProgram, native_program, through_shim
from fxstack_inductor.codegen.wrapper import HostProgram, host_program
from fxstack_inductor.errors import CompilerFailedError, IndexOutOfRange, NoCompilerError
from fxstack_inductor.lower.accumulate import accumulate_products
from fxstack_inductor.lower.graph import lower_graph
from fxstack_inductor.lower.rules import RULES
from fxstack_inductor.runtime.arena import Workspace, flat, shared_pool
from fxstack_inductor.runtime.dropout import DRAW, bernoulli
from fxstack_inductor.runtime.loader import functions_of, load_library
from fxstack_inductor.runtime.native import Refused, bind, native_table, pack
from fxstack_inductor.schedule.outvariants import draws_bernoulli
from fxstack_inductor.schedule.plan import KernelStep, Plan, plan

if TYPE_CHECKING:
    from collections.abc import Callable

    from torch.fx import GraphModule

    from fxstack_inductor.options import InductorOptions

    Compiled = Callable[..., tuple[Any, ...]]


FEWEST_CALLS = 4
"""A graph without kernels is worth a compiler's run if it makes this many calls that a native host program makes faster."""


SHOW_IT = (
    "a script that shows it alone: fxstack_inductor.write_repro(graph, example_inputs, 'repro.py'), or have one written for "
    "each graph of a program with options={'repro_dir': 'FOLDER'} or FXSTACK_REPRO_DIR=FOLDER in the environment"
)


@dataclass(frozen=True)
class Lowered:
    """What a graph was lowered to: the schedule, the kernels in C and the host program."""

    plan: Plan
    c: str
    program: HostProgram
    functions: dict[str, str]
    graph: GraphModule
    """What was lowered."""
    options: InductorOptions

    @property
    def text(self) -> str:
        """The file to compile: the kernels and, if it is native, the host program."""
        program = self.program
        return f"{self.c}\n{program.c}" if isinstance(program, NativeProgram) else self.c

    @cached_property
    def host(self) -> str:
        """The host program as Python; a native one, which is part of ``c``, does the same."""
        if isinstance(self.program, NativeProgram):
            return host_program(self.plan, self.functions).source
        return self.program.source


def lower_c(graph_module: GraphModule, options: InductorOptions, *, boxed: bool = False) -> Lowered:
    """The generated code; neither a compiler nor a certain machine is needed."""
    accumulated = accumulate_products(graph_module)
    scheduled = plan(lower_graph(accumulated, RULES, options), options)
    kernels = [step.kernel for step in scheduled.steps if isinstance(step, KernelStep)]
    random = any(draws_bernoulli(step) for step in scheduled.steps)
    source = c_source(kernels, options, random=random)
    worth = kernels or sum(map(through_shim, scheduled.steps)) >= FEWEST_CALLS
    if not worth or native_refusal(options) is not None:
        host = host_program(scheduled, source.functions, boxed=boxed)
        text = source.text if kernels or random else ""
        return Lowered(scheduled, text, host, source.functions, graph_module, options)
    native = native_program(scheduled, source.functions, boxed=boxed)
    return Lowered(scheduled, source.text, native, source.functions, graph_module, options)


def native_refusal(options: InductorOptions) -> str | None:
    """Why host programs are Python, if they are."""
    if options.host == "python":
        return "the option host='python' is set"
    table = native_table()
    return table.reason if isinstance(table, Refused) else None


def load_c(graph_module: GraphModule, options: InductorOptions, *, boxed: bool) -> Compiled:
    """Compile the graph into a callable.

    Raises:
        NoCompilerError: if kernels are needed and there is no C compiler.
    """
    lowered = lower_c(graph_module, options, boxed=boxed)
    try:
        library = load_library(lowered.text, options) if lowered.text else None
    except CompilerFailedError as failure:
        raise CompilerFailedError(f"{failure}\n{SHOW_IT}") from failure
    except NoCompilerError:
        if any(isinstance(step, KernelStep) for step in lowered.plan.steps):
            raise
        return load_c(graph_module, replace(options, host="python"), boxed=boxed)
    program = lowered.program
    packing = pack if isinstance(program, NativeProgram) else flat
    workspace = Workspace(program.slots, program.windows, program.symbols, shared_pool(), packing)
    error = ctypes.c_int32(0)
    namespace = {
        **program.constants,
        "take": workspace.take,
        "give": workspace.give,
        "error": error,
        "error_address": ctypes.addressof(error),
        "out_of_range": IndexOutOfRange,
    }
    if library is not None:
        namespace |= functions_of(library, program.arguments)
    if DRAW in program.arguments:
        namespace["bernoulli"] = bernoulli(namespace[DRAW])
    code = compile(program.source, f"<fxstack {graph_module._get_name()}>", "exec")
    exec(code, namespace)  # noqa: S102 - the program was generated just above
    if isinstance(program, NativeProgram) and library is not None:
        namespace["call"] = bind(library, tuple(namespace[name] for name in program.state))
    run = _entry(namespace["call"], graph_module, lowered, error)
    if boxed:
        run.boxed = True  # type: ignore[attr-defined]
    run.lowered = lowered  # type: ignore[attr-defined]
    return run


def _entry(
    call: Compiled, graph_module: GraphModule, lowered: Lowered, error: ctypes.c_int32
) -> Compiled:
    """``call`` without autograd, and with eager's error for an index that is out of range."""
    below_autograd = torch._C._AutoDispatchBelowAutograd
    steps = lowered.plan.steps
    checked = any(isinstance(s, KernelStep) and s.kernel.checked for s in steps)
    if isinstance(lowered.program, NativeProgram) and not lowered.program.calls_back:
        # Nothing in it asks torch's dispatcher.
        def direct(*args: Any) -> tuple[Any, ...]:
            return call(*args)
    else:

        def direct(*args: Any) -> tuple[Any, ...]:
            with below_autograd():
                return call(*args)

    if not checked:
        return direct

    def run(*args: Any) -> tuple[Any, ...]:
        boxed = getattr(run, "boxed", False)
        inputs = tuple(args[0]) if boxed else args
        try:
            return direct(*args)
        except IndexOutOfRange:
            error.value = 0
            # Nothing has been written to an input yet: eager raises its own error.
            with torch.no_grad():
                interpreter = Interpreter(graph_module)
                interpreter.extra_traceback = False
                return tuple(interpreter.run(*inputs))

    return run
