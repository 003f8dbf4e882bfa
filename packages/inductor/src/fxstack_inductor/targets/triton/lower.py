"""Lower a CUDA graph to text: Triton kernels from the same schedule as for C, and a host program."""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any, Final

from torch.fx import GraphModule

from fxstack_inductor.autotune.candidates import Candidates
from fxstack_inductor.autotune.selection import plan_by_cost
from fxstack_inductor.autotune.tune import device_tuner, tune_plan
from fxstack_inductor.codegen.host.build import host_steps
from fxstack_inductor.codegen.host.program import HostProgram
from fxstack_inductor.codegen.host.records import HostSteps, show_steps
from fxstack_inductor.codegen.host.triton_host import InterpretedPrinter, TritonPrinter
from fxstack_inductor.codegen.triton.ops import PRELUDE
from fxstack_inductor.cost.devices import Gpu, gpu_of
from fxstack_inductor.ir.expr import Expr
from fxstack_inductor.ir.kernel import Kernel
from fxstack_inductor.lower.host.symbols import hints
from fxstack_inductor.lower.passes import Lowering, lower_by_passes
from fxstack_inductor.lower.target import KernelTarget
from fxstack_inductor.options import InductorOptions
from fxstack_inductor.schedule.fusion.reuse import reuse_memory
from fxstack_inductor.schedule.int32_indexing import small_kernels
from fxstack_inductor.schedule.plan import plan
from fxstack_inductor.schedule.steps import KernelStep, Plan, show_plan
from fxstack_inductor.targets.target import tensors_of
from fxstack_inductor.targets.triton.artifact import LoweredTriton, graph_refusal
from fxstack_inductor.templates.all_templates import template_candidates, template_rules
from fxstack_inductor.templates.kernels import triton_source
from fxstack_inductor.tiling.kernels import KernelConfig, TritonSource
from fxstack_interchange.passes import NothingToDo, Pass, run_passes

KERNELS = KernelTarget(device="cuda", many_threads=True, wide_moments=False, float8=True)
"""The facts about Triton kernels on a GPU that decide how operators are lowered."""


def on_cuda(graph_module: GraphModule) -> bool:
    """Whether the graph has CUDA tensors. Operators on the CPU tensors of such a graph stay calls of ATen."""
    return any(v.device.type == "cuda" for v in tensors_of(graph_module))


def uses_interpreter() -> bool:
    """Whether kernels run in Triton's interpreter, by the environment variable that Triton itself reads."""
    return os.environ.get("TRITON_INTERPRET", "") in {"1", "true", "on", "yes"}


def records_graphs(options: InductorOptions) -> bool:
    """Whether calls should be recorded as CUDA graphs."""
    return options.cuda_graphs and not uses_interpreter()


def lower_triton(
    graph_module: GraphModule,
    options: InductorOptions,
    *,
    interpreted: bool = False,
    target: str = "cuda",
    boxed: bool = False,
    wide: bool = False,
    draws: bool = True,
) -> LoweredTriton:
    """Return the generated code, on any machine; neither a GPU nor Triton is needed.

    ``boxed``: the program takes one list. A program that is recorded as a CUDA graph never does. ``wide``:
    kernels index symbolic sizes with 64 bits. ``draws``: kernels draw the random numbers of dropout.

    Raises:
        ValueError: ``target`` is not a known GPU.
    """
    gpu_of(target)
    # CPU tensors become loops only in a printed graph and in Triton's interpreter.
    kernel_target = replace(KERNELS, device="cuda" if on_cuda(graph_module) else "cpu", draws=draws)
    scheduled, configs = _plan(graph_module, options, kernel_target, gpu_of(target))
    values = tuple(n.meta.get("val") for n in graph_module.graph.nodes if n.op == "placeholder")
    boxed = boxed and not (records_graphs(options) and graph_refusal(scheduled) is None)
    scheduled = replace(scheduled, boxed=boxed)
    state = TritonPrinting(
        scheduled, _kernels(scheduled), configs, values, interpreted=interpreted, boxed=boxed, wide=wide
    )
    state = run_passes("triton", TRITON, state, text)
    assert state.program is not None
    return LoweredTriton(state.plan, state.triton, state.program, values, target, boxed, state.limits)


@dataclass(frozen=True, slots=True)
class TritonPrinting:
    """A schedule between two passes. ``configs``: measured tile sizes; ``values``: the graph's fake inputs.

    ``interpreted``, ``boxed`` and ``wide`` are arguments of ``lower_triton``. ``limits``: see ``LoweredTriton``.
    """

    plan: Plan
    kernels: tuple[Kernel, ...]
    configs: Mapping[str, KernelConfig]
    """By the kernel's name; a kernel without an entry gets sizes without a search."""
    values: tuple[Any, ...]
    interpreted: bool
    boxed: bool
    wide: bool
    limits: tuple[Expr, ...] = ()
    source: TritonSource | None = None
    """Set by ``print_kernels``; None before."""
    steps: HostSteps | None = None
    """Set by ``plan_host``; None before."""
    program: HostProgram | None = None
    """Set by ``print_host``; None before."""

    @property
    def triton(self) -> TritonSource:
        """The kernels in Triton, for passes after ``print_kernels``."""
        assert self.source is not None
        return self.source


def overwrite_operands(state: TritonPrinting) -> TritonPrinting | NothingToDo:
    """Let kernels write their results over operands that no later step needs, element by element.

    >>> example("overwrite_operands", lambda x: (x @ x).exp() @ x)
    - kernel_1: exp; reads mm; stores exp__0
    - mm_1 = aten.mm(exp__0, arg0_1)
    + kernel_1: exp; reads mm; stores
    + mm_1 = aten.mm(mm, arg0_1)
    """
    plan = reuse_memory(state.plan)
    if plan is state.plan:
        return NothingToDo("no kernel reads the elements that it writes a last time")
    return replace(state, plan=plan, kernels=_kernels(plan))


def _kernels(plan: Plan) -> tuple[Kernel, ...]:
    return tuple(step.kernel for step in plan.steps if isinstance(step, KernelStep))


def narrow_indices(state: TritonPrinting) -> TritonPrinting | NothingToDo:
    """Let kernels of symbolic sizes index with 32 bits, if each call checks that its sizes allow this.

    >>> example("narrow_indices", lambda x: x * 2, dynamic=True)
    + # must fit into 32 bits: s0*s0
    + # kernel_0 indexes with 32 bits
    """
    if state.wide:
        return NothingToDo("the sizes of a call were too large")
    kernels, limits = small_kernels(state.kernels, state.plan.program, hints(state.values))
    if not limits:
        return NothingToDo("no kernel needs a check of its sizes")
    return replace(state, kernels=tuple(kernels), limits=limits)


def print_kernels(state: TritonPrinting) -> TritonPrinting:
    """Write the kernels as Triton functions; equal kernels become one function.

    >>> example("print_kernels", lambda x: x * 2)
    + # mul
    + @triton.jit
    + def kernel_0(a0, a1, XBLOCK: tl.constexpr, RBLOCK: tl.constexpr):
    + xnumel = 16
    + x = (tl.program_id(0)).to(tl.int32) * XBLOCK + tl.arange(0, XBLOCK).to(tl.int32)
    ...
    + tl.store(a1 + (p0 + xzero), tl.broadcast_to(v2, [XBLOCK]).to(tl.float32), mask=xmask)
    """
    return replace(state, source=triton_source(state.kernels, state.configs))


def plan_host(state: TritonPrinting) -> TritonPrinting:
    """List what the host does between the kernels: allocate, launch, call, check, free.

    >>> example("plan_host", lambda x: (x @ x).exp())
    + allocate mm
    + mm = aten.mm(arg0_1, mm)
    + free arg0_1
    + allocate exp__0
    + launch kernel_1(mm, exp__0)
    ...
    + return exp__0
    """
    return replace(state, steps=host_steps(state.plan, device=True))


def print_host(state: TritonPrinting) -> TritonPrinting:
    """Write the host program in Python.

    >>> example("print_host", lambda x: x * 2)
    - copy arg0_1 if its strides are not 4, 1
    - allocate mul__0
    - launch kernel_0(arg0_1, mul__0)
    - free arg0_1
    - raise the error of a kernel
    ...
    + return (mul__0, )
    """
    assert state.steps is not None
    printer = (InterpretedPrinter if state.interpreted else TritonPrinter)(
        state.steps, {}, kernels=state.triton.functions
    )
    return replace(state, program=printer.program(boxed=state.boxed))


def text(state: TritonPrinting) -> str:
    """Return the schedule, the kernels in Triton and the host program as text."""
    parts = [show_plan(state.plan), *(f"# must fit into 32 bits: {expr}" for expr in state.limits)]
    parts += [f"# {kernel.name} indexes with 32 bits" for kernel in state.kernels if kernel.small]
    if state.source is not None:
        parts.append(state.source.text.removeprefix(PRELUDE))
    if state.program is not None:
        parts.append(state.program.source)
    elif state.steps is not None:
        parts.append(show_steps(state.steps))
    return "\n".join(parts)


TRITON: Final = (
    Pass("overwrite_operands", overwrite_operands),
    Pass("narrow_indices", narrow_indices),
    Pass("print_kernels", print_kernels),
    Pass("plan_host", plan_host),
    Pass("print_host", print_host),
)


def _plan(
    graph_module: GraphModule, options: InductorOptions, target: KernelTarget, gpu: Gpu
) -> tuple[Plan, dict[str, KernelConfig]]:
    """Return the schedule, and measured tile sizes by the kernel's name; only candidates that pay become kernels."""

    def schedule_with(chosen: Candidates) -> Plan:
        rules = {**always, **{name: candidate.rule for name, candidate in chosen.items()}}
        return plan(lower_by_passes(Lowering(graph_module, options, target, rules)), options)

    always = template_rules(graph_module, options, target)
    chosen: Candidates = template_candidates(graph_module) if options.templates else {}
    if chosen and options.autotune and target.device == KERNELS.device:
        tuner = device_tuner(options, _first_device(graph_module))
        if tuner is not None:
            return tune_plan(schedule_with, chosen, *tuner)
    sizes = hints([n.meta.get("val") for n in graph_module.graph.nodes if n.op == "placeholder"])
    return plan_by_cost(schedule_with, chosen, gpu, sizes), {}


def _first_device(graph_module: GraphModule) -> int:
    """Return the number of the GPU of the graph's first tensor on a GPU."""
    devices = (v.device for v in tensors_of(graph_module) if v.device.type == "cuda")
    return next(devices).index or 0
