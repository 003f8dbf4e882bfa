"""Graphs on CUDA: from the same schedule as for C, Triton kernels and a host program that launches them, as text."""

from __future__ import annotations

import os
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

import torch

from fxstack_inductor import torch_compat
from fxstack_inductor.autotune.tune import device_tuner, tuned
from fxstack_inductor.codegen.host.triton_host import device_program, interpreted_program
from fxstack_inductor.codegen.triton.module import TritonSource, triton_source
from fxstack_inductor.cost.devices import gpu_of
from fxstack_inductor.ir.nodes import Argument, ExternCall
from fxstack_inductor.lower.graph import lower_graph
from fxstack_inductor.lower.host.scalars import numbers_on_device
from fxstack_inductor.lower.host.symbols import hints
from fxstack_inductor.lower.rules import RULES
from fxstack_inductor.schedule.fusion.templates import candidates, worth
from fxstack_inductor.schedule.int32_indexing import small_kernels
from fxstack_inductor.schedule.plan import KernelStep, Plan, plan
from fxstack_inductor.schedule.split import split_reductions
from fxstack_interchange.operators.kernel_operators import FunctionalLaunch

if TYPE_CHECKING:
    from collections.abc import Iterable

    from torch.fx import GraphModule

    from fxstack_inductor.codegen.host.python_host import HostProgram
    from fxstack_inductor.codegen.triton.product_tiles import ProductConfig
    from fxstack_inductor.cost.devices import Gpu
    from fxstack_inductor.cost.model import Cost
    from fxstack_inductor.ir.expr import Expr
    from fxstack_inductor.ir.nodes import Node
    from fxstack_inductor.options import InductorOptions
    from fxstack_inductor.schedule.fusion.templates import Candidates


@dataclass(frozen=True)
class LoweredTriton:
    """What a graph was lowered to: the schedule, the Triton module and the host program."""

    plan: Plan
    source: TritonSource
    program: HostProgram
    values: tuple[Any, ...] = ()
    """The graph's fake inputs."""
    target: str = "cuda"
    boxed: bool = False
    """Whether the program takes one list, which it empties."""
    limits: tuple[Expr, ...] = ()
    """Functions of the sizes that must fit into 32 bits where the program is called."""

    def predict(self, target: str = "") -> tuple[Cost, ...]:
        """Predicted times of the launches and calls, in order, on a GPU as in ``target`` (``cuda:sm_90``, ``cuda:H200``).

        Raises:
            ValueError: the model does not know the GPU.
        """
        from fxstack_inductor.cost import model  # noqa: PLC0415 - torch's operation counts take a while to import

        tilings = {name: function.tiling for name, function in self.source.functions.items()}
        sizes = hints(self.values)
        return model.predict(self.plan, tilings, gpu_of(target or self.target), sizes)

    def report(self, target: str = "") -> str:
        """The same as a table, the sum first."""
        from fxstack_inductor.cost import model  # noqa: PLC0415

        return model.report(self.predict(target), gpu_of(target or self.target))

    @property
    def triton(self) -> str:
        return self.source.text

    @property
    def host(self) -> str:
        return self.program.source


def on_cuda(graph_module: GraphModule) -> bool:
    """Whether the graph computes on CUDA; tensors on CPU beside it are left to ATen."""
    return any(v.device.type == "cuda" for v in _tensors(graph_module))


def _tensors(graph_module: GraphModule) -> Iterable[torch.Tensor]:
    for node in graph_module.graph.nodes:
        value = node.meta.get("val")
        for v in value if isinstance(value, (tuple, list)) else (value,):
            if isinstance(v, torch.Tensor):
                yield v


def interpreting() -> bool:
    """Whether kernels run in Triton's interpreter: the environment variable that Triton reads itself."""
    return os.environ.get("TRITON_INTERPRET", "") in {"1", "true", "on", "yes"}


def recorded(options: InductorOptions) -> bool:
    """Whether calls are to be recorded as CUDA graphs."""
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
    """The generated code, on any machine; neither a GPU nor Triton is needed.

    ``boxed``: the program is to take one list, unless it is to be recorded as a CUDA graph. ``wide``: kernels index with 64 bits
    where sizes are symbolic.

    Raises:
        ValueError: ``target`` is no GPU that is known.
    """
    gpu_of(target)
    options = replace(options, target="cuda")  # rules decide by it where a graph of CPU tensors is shown
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
    """The schedule, in which matrix products that pay are kernels and all others calls, and tile sizes that were measured."""

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
    """Why ``plan`` cannot be recorded, if it cannot: what it needs the host for while it runs."""
    for step in plan.steps:
        if isinstance(step, ExternCall):
            if any(isinstance(output, Argument) for output in step.outputs):
                return f"{step.name.removesuffix('_bits')} is a number that kernels are launched with"
            tags = getattr(step.target, "tags", ())
            if isinstance(getattr(step.target, "__self__", None), FunctionalLaunch):
                continue  # a user's kernel, which has been launched, and tuned, by the first call
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
    """Whether it is an index by numbers, whose result is as large as they are many; masks are counted."""
    if step.target is not torch.ops.aten.index.Tensor:
        return False
    return all(node.dtype not in {torch.bool, torch.uint8} for node in step.reads[1:])


def touched(plan: Plan) -> list[Node]:
    """The tensors that the program reads and makes."""
    nodes: list[Node] = list(plan.program.inputs.values())
    for step in plan.steps:
        if isinstance(step, KernelStep):
            nodes += step.stored
        elif isinstance(step, ExternCall):
            nodes += [*step.reads, *step.outputs]
    return nodes
