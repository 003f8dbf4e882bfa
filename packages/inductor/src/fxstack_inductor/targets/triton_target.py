"""The CUDA target: Triton kernels from the same schedule as for C, and a host program, as text."""

from __future__ import annotations

import os
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, Final

import torch
from torch.fx import GraphModule

from fxstack_inductor import torch_compat
from fxstack_inductor.autotune.templates import Candidates, candidates, worth
from fxstack_inductor.autotune.tune import device_tuner, tuned
from fxstack_inductor.codegen.host.build import host_steps
from fxstack_inductor.codegen.host.program import HostProgram
from fxstack_inductor.codegen.host.records import HostSteps, show_steps
from fxstack_inductor.codegen.host.triton_host import device_program, interpreted_program
from fxstack_inductor.codegen.triton.module import triton_source
from fxstack_inductor.codegen.triton.ops import PRELUDE
from fxstack_inductor.cost.devices import Gpu, gpu_of
from fxstack_inductor.ir.expr import Expr
from fxstack_inductor.ir.kernel import Kernel
from fxstack_inductor.ir.nodes import Argument, ExternCall, Node
from fxstack_inductor.lower.host.symbols import hints
from fxstack_inductor.lower.passes import Lowering, lower_by_passes
from fxstack_inductor.options import InductorOptions
from fxstack_inductor.schedule.fusion.inlining import is_range_call
from fxstack_inductor.schedule.int32_indexing import small_kernels
from fxstack_inductor.schedule.plan import plan
from fxstack_inductor.schedule.steps import KernelStep, Plan, show_plan
from fxstack_inductor.tiling.kernels import TritonSource
from fxstack_inductor.tiling.product_tiles import ProductConfig
from fxstack_interchange.format.show import short_repr
from fxstack_interchange.operators.kernel_operators import FunctionalLaunch
from fxstack_interchange.passes import NothingToDo, Pass, run_passes

if TYPE_CHECKING:  # its import of torch's operation counts takes 100 ms
    from fxstack_inductor.cost.model import Cost


@dataclass(frozen=True, repr=False)
class LoweredTriton:
    """A lowered graph: the schedule, the Triton module and the host program."""

    plan: Plan
    source: TritonSource
    program: HostProgram
    values: tuple[Any, ...] = ()
    """The graph's fake inputs."""
    target: str = "cuda"
    boxed: bool = False
    """Whether the program takes one list, which it empties."""
    limits: tuple[Expr, ...] = ()
    """Expressions of sizes that must fit into 32 bits in each call."""

    __repr__ = short_repr

    def predict(self, target: str = "") -> tuple[Cost, ...]:
        """Return predicted times of launches and calls on ``target`` (``cuda:sm_90``, ``cuda:H200``).

        Raises:
            ValueError: the model does not know the GPU.
        """
        from fxstack_inductor.cost import model  # noqa: PLC0415 - torch's operation counts take a while to import

        tilings = {name: function.tiling for name, function in self.source.functions.items()}
        sizes = hints(self.values)
        return model.predict(self.plan, tilings, gpu_of(target or self.target), sizes)

    def report(self, target: str = "") -> str:
        """Return the predictions as a table, with the sum first."""
        from fxstack_inductor.cost import model  # noqa: PLC0415

        return model.report(self.predict(target), gpu_of(target or self.target))

    @property
    def triton(self) -> str:
        return self.source.text

    @property
    def kernels(self) -> str:
        """The kernels, as a module of Triton functions."""
        return self.source.text

    @property
    def host(self) -> str:
        return self.program.source


def on_cuda(graph_module: GraphModule) -> bool:
    """Whether the graph computes on CUDA; CPU tensors in such a graph are left to ATen."""
    return any(v.device.type == "cuda" for v in _tensors(graph_module))


def _tensors(graph_module: GraphModule) -> Iterable[torch.Tensor]:
    for node in graph_module.graph.nodes:
        value = node.meta.get("val")
        for v in value if isinstance(value, (tuple, list)) else (value,):
            if isinstance(v, torch.Tensor):
                yield v


def interpreting() -> bool:
    """Whether kernels run in Triton's interpreter, by the environment variable that Triton itself reads."""
    return os.environ.get("TRITON_INTERPRET", "") in {"1", "true", "on", "yes"}


def recorded(options: InductorOptions) -> bool:
    """Whether calls should be recorded as CUDA graphs."""
    return options.cuda_graphs and not interpreting()


def lower_triton(
    graph_module: GraphModule,
    options: InductorOptions,
    *,
    interpreted: bool = False,
    target: str = "cuda",
    boxed: bool = False,
    wide: bool = False,
) -> LoweredTriton:
    """Return the generated code, on any machine; neither a GPU nor Triton is needed.

    ``boxed``: the program should take one list, unless it is recorded as a CUDA graph. ``wide``: kernels
    index symbolic sizes with 64 bits.

    Raises:
        ValueError: ``target`` is not a known GPU.
    """
    gpu_of(target)
    options = replace(options, target="cuda")  # rules check the target for printed graphs of CPU tensors
    device = "cuda" if on_cuda(graph_module) else "cpu"
    scheduled, configs = _plan(graph_module, options, device, gpu_of(target))
    values = tuple(n.meta.get("val") for n in graph_module.graph.nodes if n.op == "placeholder")
    boxed = boxed and not (recorded(options) and graph_refusal(scheduled) is None)
    kernels = tuple(step.kernel for step in scheduled.steps if isinstance(step, KernelStep))
    state = TritonPrinting(
        scheduled, kernels, configs, values, interpreted=interpreted, boxed=boxed, wide=wide
    )
    state = run_passes("triton", TRITON, state, text)
    assert state.program is not None
    return LoweredTriton(scheduled, state.triton, state.program, values, target, boxed, state.limits)


@dataclass(frozen=True, slots=True)
class TritonPrinting:
    """A schedule between two passes. ``configs``: measured tile sizes; ``values``: the graph's fake inputs.

    ``interpreted``, ``boxed`` and ``wide`` are those of ``lower_triton``. ``limits``: see ``LoweredTriton``.
    """

    plan: Plan
    kernels: tuple[Kernel, ...]
    configs: Mapping[str, ProductConfig]
    values: tuple[Any, ...]
    interpreted: bool
    boxed: bool
    wide: bool
    limits: tuple[Expr, ...] = ()
    source: TritonSource | None = None
    steps: HostSteps | None = None
    program: HostProgram | None = None

    @property
    def triton(self) -> TritonSource:
        assert self.source is not None
        return self.source


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
    write = interpreted_program if state.interpreted else device_program
    return replace(state, program=write(state.steps, state.triton.functions, boxed=state.boxed))


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
    Pass("narrow_indices", narrow_indices),
    Pass("print_kernels", print_kernels),
    Pass("plan_host", plan_host),
    Pass("print_host", print_host),
)


def _plan(
    graph_module: GraphModule, options: InductorOptions, device: str, gpu: Gpu
) -> tuple[Plan, dict[str, ProductConfig]]:
    """Return the schedule and measured tile sizes; only matrix products that pay become kernels."""

    def planned(chosen: Candidates) -> Plan:
        rules = {name: one.rule for name, one in chosen.items()}
        return plan(lower_by_passes(Lowering(graph_module, options, "triton", device, rules)), options)

    chosen = candidates(graph_module) if options.templates else {}
    if chosen and options.autotune and device == "cuda":
        tuner = device_tuner(options, _first_device(graph_module))
        if tuner is not None:
            return tuned(planned, chosen, *tuner)
    made = planned(chosen)
    kept = worth(made, chosen, gpu)
    if kept == set(chosen):
        return made, {}
    return planned({name: one for name, one in chosen.items() if name in kept}), {}


def _first_device(graph_module: GraphModule) -> int:
    devices = (v.device for v in _tensors(graph_module) if v.device.type == "cuda")
    return next(devices).index or 0


def graph_refusal(plan: Plan) -> str | None:
    """Return why ``plan`` cannot be recorded (a need for the host while it runs), or None."""
    for step in plan.steps:
        if isinstance(step, ExternCall):
            if any(isinstance(output, Argument) for output in step.outputs):
                return f"{step.name.removesuffix('_bits')} is a number that kernels are launched with"
            tags = getattr(step.target, "tags", ())
            if isinstance(getattr(step.target, "__self__", None), FunctionalLaunch):
                continue  # a user's kernel: the first call has launched and tuned it
            if not isinstance(step.target, torch_compat.OpOverload):
                return f"{step.name} calls {step.target}, which is not known to stay on the device"
            waits = torch.Tag.dynamic_output_shape in tags and not _by_numbers(step)
            if waits or torch.Tag.data_dependent_output in tags:
                return f"{step.name} ({step.target}) gives a tensor whose size the host must wait for"
        elif is_range_call(step):
            return f"{step.name} begins or ends a profiler range, which a recording would leave out"
        elif not isinstance(step, KernelStep) and step.reads:
            return f"{step.name} ({step.target}) brings a tensor's value to the host"
    nodes = touched(plan)
    for node in nodes:
        if node.device.type != "cuda":
            return f"tensor {node.name} is on {node.device}"
    devices = sorted({str(node.device) for node in nodes})
    return f"it spans {', '.join(devices)}" if len(devices) > 1 else None


def _by_numbers(step: ExternCall) -> bool:
    """Whether ``step`` indexes by numbers, so that the result's size is known; masks must be counted."""
    if step.target is not torch.ops.aten.index.Tensor:
        return False
    return all(node.dtype not in {torch.bool, torch.uint8} for node in step.reads[1:])


def touched(plan: Plan) -> list[Node]:
    """Return the tensors that the program reads and makes."""
    nodes: list[Node] = list(plan.program.inputs.values())
    for step in plan.steps:
        if isinstance(step, KernelStep):
            nodes += step.stored
        elif isinstance(step, ExternCall):
            nodes += [*step.reads, *step.outputs]
    return nodes
