"""The CUDA target: Triton kernels from the same schedule as for C, and a host program, as text."""

from __future__ import annotations

import os
from collections.abc import Iterable
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

import torch
from torch.fx import GraphModule

from fxstack_inductor import torch_compat
from fxstack_inductor.autotune.tune import device_tuner, tuned
from fxstack_inductor.codegen.host.program import HostProgram
from fxstack_inductor.codegen.host.triton_host import device_program, interpreted_program
from fxstack_inductor.codegen.triton.module import TritonSource, triton_source
from fxstack_inductor.codegen.triton.product_tiles import ProductConfig
from fxstack_inductor.cost.devices import Gpu, gpu_of
from fxstack_inductor.ir.expr import Expr
from fxstack_inductor.ir.nodes import Argument, ExternCall, Node
from fxstack_inductor.lower.graph import lower_graph
from fxstack_inductor.lower.host.scalars import numbers_on_device
from fxstack_inductor.lower.host.symbols import hints
from fxstack_inductor.lower.rules import RULES
from fxstack_inductor.options import InductorOptions
from fxstack_inductor.schedule.fusion.templates import Candidates, candidates, worth
from fxstack_inductor.schedule.int32_indexing import small_kernels
from fxstack_inductor.schedule.plan import KernelStep, Plan, plan
from fxstack_inductor.schedule.split import split_reductions
from fxstack_interchange.operators.kernel_operators import FunctionalLaunch

if TYPE_CHECKING:  # its import of torch's operation counts takes 100 ms
    from fxstack_inductor.cost.model import Cost


@dataclass(frozen=True)
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
    graph_module = numbers_on_device(graph_module)
    device = "cuda" if on_cuda(graph_module) else "cpu"
    scheduled, configs = _plan(graph_module, options, device, gpu_of(target))
    values = tuple(n.meta.get("val") for n in graph_module.graph.nodes if n.op == "placeholder")
    kernels = [step.kernel for step in scheduled.steps if isinstance(step, KernelStep)]
    kernels, limits = (kernels, ()) if wide else small_kernels(kernels, scheduled.program, hints(values))
    source = triton_source(kernels, configs)
    write = interpreted_program if interpreted else device_program
    boxed = boxed and not (recorded(options) and graph_refusal(scheduled) is None)
    host = write(scheduled, source.functions, boxed=boxed)
    return LoweredTriton(scheduled, source, host, values, target, boxed, limits)


def _plan(
    graph_module: GraphModule, options: InductorOptions, device: str, gpu: Gpu
) -> tuple[Plan, dict[str, ProductConfig]]:
    """Return the schedule and measured tile sizes; only matrix products that pay become kernels."""

    def planned(chosen: Candidates) -> Plan:
        rules = {name: one.rule for name, one in chosen.items()}
        program = lower_graph(graph_module, RULES, options, device, rules)
        split_reductions(program)
        return plan(program, options)

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
