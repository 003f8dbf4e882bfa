"""Graphs on CUDA: from the same schedule as for C, Triton kernels and a host program that launches them."""

from __future__ import annotations

import os
import warnings
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

import torch

from fxstack_inductor.autotune.tune import device_tuner, tuned
from fxstack_inductor.codegen.triton import TritonSource, triton_source
from fxstack_inductor.codegen.triton_host import (
    Launch,
    device_program,
    interpreted_program,
    launches,
)
from fxstack_inductor.codegen.wrapper import linked
from fxstack_inductor.cost.devices import gpu_of
from fxstack_inductor.errors import TRITON_HINT, TritonMissing
from fxstack_inductor.ir.nodes import Argument, ExternCall
from fxstack_inductor.lower.graph import lower_graph
from fxstack_inductor.lower.rules import RULES
from fxstack_inductor.lower.scalars import numbers_on_device
from fxstack_inductor.runtime.cubins import load_cubins
from fxstack_inductor.runtime.cuda_driver import Driver, Launchers
from fxstack_inductor.runtime.cuda_graphs import GraphedCall, capture_on_device, stream_of
from fxstack_inductor.schedule.plan import KernelStep, Plan, plan
from fxstack_inductor.schedule.split import split_reductions
from fxstack_inductor.schedule.templates import candidates, worth

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from torch.fx import GraphModule

    from fxstack_inductor.codegen.product_tiles import ProductConfig
    from fxstack_inductor.codegen.wrapper import HostProgram
    from fxstack_inductor.cost.devices import Gpu
    from fxstack_inductor.cost.model import Cost
    from fxstack_inductor.ir.nodes import Node
    from fxstack_inductor.options import InductorOptions
    from fxstack_inductor.schedule.templates import Candidates


@dataclass(frozen=True)
class LoweredTriton:
    """What a graph was lowered to: the schedule, the Triton module and the host program."""

    plan: Plan
    source: TritonSource
    program: HostProgram
    values: tuple[Any, ...] = ()
    """The graph's fake inputs."""
    target: str = "cuda"

    def predict(self, target: str = "") -> tuple[Cost, ...]:
        """Predicted times of the launches and calls, in order, on a GPU as in ``target`` (``cuda:sm_90``, ``cuda:H200``).

        Raises:
            ValueError: the model does not know the GPU.
        """
        from fxstack_inductor.cost import model  # noqa: PLC0415 - torch's operation counts take a while to import

        tilings = {name: function.tiling for name, function in self.source.functions.items()}
        sizes = model.hints(self.values)
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


def lower_triton(
    graph_module: GraphModule,
    options: InductorOptions,
    *,
    interpreted: bool = False,
    target: str = "cuda",
) -> LoweredTriton:
    """The generated code, on any machine; neither a GPU nor Triton is needed.

    Raises:
        ValueError: ``target`` is no GPU that is known.
    """
    gpu_of(target)
    options = replace(
        options, target="cuda"
    )  # rules decide by it where a graph of CPU tensors is shown
    graph_module = numbers_on_device(graph_module)
    device = "cuda" if on_cuda(graph_module) else "cpu"
    scheduled, configs = _plan(graph_module, options, device, gpu_of(target))
    kernels = [step.kernel for step in scheduled.steps if isinstance(step, KernelStep)]
    source = triton_source(kernels, configs)
    write = interpreted_program if interpreted else device_program
    values = tuple(n.meta.get("val") for n in graph_module.graph.nodes if n.op == "placeholder")
    host = write(scheduled, source.functions)
    return LoweredTriton(scheduled, source, host, values, target)


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


def load_triton(
    graph_module: GraphModule, options: InductorOptions
) -> tuple[LoweredTriton, Callable[..., tuple[Any, ...]]]:
    """The generated code and a callable of the graph's inputs (on CPU where Triton runs its interpreter).

    Raises:
        ValueError: the graph's tensors are on CPU, and the interpreter is off.
        TritonMissing: Triton is needed and not installed.
        CudaError: the driver cannot be used.
    """
    interpreted = interpreting()
    if not interpreted and not on_cuda(graph_module):
        raise ValueError(
            "target='cuda' was asked for a graph of CPU tensors: move the tensors to a GPU, or set "
            "TRITON_INTERPRET=1 before Triton is imported to run the kernels in its interpreter"
        )
    lowered = lower_triton(graph_module, options, interpreted=interpreted)
    namespace = linked(lowered.program.constants)
    if lowered.source.functions:
        add = _interpreted_kernels if interpreted else _device_kernels
        namespace |= add(lowered, options)
    code = compile(lowered.host, f"<fxstack {graph_module._get_name()}>", "exec")
    exec(code, namespace)  # noqa: S102 - the program was generated just above
    return lowered, namespace["call"]


def _interpreted_kernels(lowered: LoweredTriton, options: InductorOptions) -> dict[str, Any]:
    runtime = triton_runtime()
    module = runtime.load_module(lowered.triton, options.cache_dir / "triton")
    return {
        name: runtime.interpreted(launch.kernel, getattr(module, launch.kernel.name))
        for name, launch in launches(lowered.plan, lowered.source.functions).items()
    }


def _device_kernels(lowered: LoweredTriton, options: InductorOptions) -> dict[str, Any]:
    devices = {launch.device for launch in _launches(lowered)}
    return device_kernels(lowered, options, Driver(), {d: _capability(d) for d in devices})


def device_kernels(
    lowered: LoweredTriton, options: InductorOptions, driver: Driver, capabilities: dict[int, int]
) -> dict[str, Any]:
    """What the host program launches with, given each device's compute capability."""
    found = launches(lowered.plan, lowered.source.functions)
    launchers = Launchers(driver, options)
    namespace: dict[str, Any] = {
        "error": launchers.error,
        "raise_launch_error": launchers.check,
    }
    cubins = {c: load_cubins(lowered.source, c, options) for c in set(capabilities.values())}
    for name, launch in found.items():
        cubin = cubins[capabilities[launch.device]][launch.kernel.name]
        count = lowered.program.arguments[name]
        namespace[f"record_{name}"], namespace[name] = launchers.add(cubin, count, launch.device)
    return namespace


def _graphed(
    lowered: LoweredTriton, call: Callable[..., tuple[Any, ...]]
) -> Callable[..., tuple[Any, ...]]:
    """``call`` recorded as a CUDA graph, or itself, after a warning, where that cannot be."""
    program = lowered.plan.program
    reason = graph_refusal(lowered.plan)
    if reason is not None:
        warnings.warn(f"fxstack: CUDA graphs are off for this graph: {reason}.", stacklevel=4)
        return call
    places = {name: k for k, name in enumerate(program.parameters)}
    mutated = frozenset(places[m.target.name] for m in program.mutations)
    stream = stream_of(_only_device(lowered.plan) or 0)
    numbers = len(program.inputs) < len(program.parameters)
    symbolic = numbers or bool(program.bindings)
    return GraphedCall(call, capture_on_device, mutated, symbolic, stream)


def graph_refusal(plan: Plan) -> str | None:
    """Why ``plan`` cannot be recorded, if it cannot: what it needs the host for while it runs."""
    for step in plan.steps:
        if isinstance(step, ExternCall):
            if any(isinstance(output, Argument) for output in step.outputs):
                return (
                    f"{step.name.removesuffix('_bits')} is a number that kernels are launched with"
                )
            tags = getattr(step.target, "tags", ())
            if not isinstance(step.target, torch._ops.OpOverload):
                return f"{step.name} calls {step.target}, which is not known to stay on the device"
            waits = torch.Tag.dynamic_output_shape in tags and not _by_numbers(step)
            if waits or torch.Tag.data_dependent_output in tags:
                return (
                    f"{step.name} ({step.target}) gives a tensor whose size the host must wait for"
                )
        elif not isinstance(step, KernelStep) and step.reads:
            return f"{step.name} ({step.target}) brings a tensor's value to the host"
    nodes = _touched(plan)
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


def _touched(plan: Plan) -> list[Node]:
    """The tensors that the program reads and makes."""
    nodes: list[Node] = list(plan.program.inputs.values())
    for step in plan.steps:
        if isinstance(step, KernelStep):
            nodes += step.stored
        elif isinstance(step, ExternCall):
            nodes += [*step.reads, *step.outputs]
    return nodes


def _only_device(plan: Plan) -> int | None:
    """The number of the one GPU that the program works on; None if there are several."""
    found = {node.device.index or 0 for node in _touched(plan) if node.device.type == "cuda"}
    return found.pop() if len(found) == 1 else None


def _launches(lowered: LoweredTriton) -> Iterable[Launch]:
    return launches(lowered.plan, lowered.source.functions).values()


def _capability(device: int) -> int:
    major, minor = torch.cuda.get_device_capability(device)
    return int(10 * major + minor)


def device_callable(
    lowered: LoweredTriton, call: Callable[..., tuple[Any, ...]], options: InductorOptions
) -> Callable[..., tuple[Any, ...]]:
    """``call`` without autograd, on its device: a launch needs the device's context to be the current one."""
    if options.cuda_graphs and not interpreting():
        call = _graphed(lowered, call)
    below_autograd = torch._C._AutoDispatchBelowAutograd
    device = None if interpreting() else _only_device(lowered.plan)

    def run(*args: Any) -> tuple[Any, ...]:
        with below_autograd():
            if device is None or torch._C._cuda_getDevice() == device:
                return call(*args)
            with torch.cuda.device(device):
                return call(*args)

    run.lowered = lowered  # type: ignore[attr-defined]
    return run


def triton_runtime() -> Any:
    """The module that needs Triton, imported where it is first used: Triton is optional."""
    try:
        from fxstack_inductor.runtime import triton_runtime as runtime  # noqa: PLC0415
    except ImportError as error:
        raise TritonMissing(f"{TRITON_HINT} (importing it gives: {error})") from error
    return runtime
