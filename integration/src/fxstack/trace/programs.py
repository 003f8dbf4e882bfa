"""Describe the compiled code of a graph as a record: kernels, buffers, bytes, predicted times and memory."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping
from typing import Any

from torch.fx import GraphModule, Node

from fxstack.log import Captured
from fxstack.trace import records
from fxstack.trace.describe import stacks_of
from fxstack_inductor import Lowered, memory_timeline
from fxstack_inductor.cost.calls import call_traffic
from fxstack_inductor.cost.cpu import Cpu, measure_cpu
from fxstack_inductor.cost.roofline import size_of
from fxstack_inductor.cost.traffic import Traffic, kernel_traffic
from fxstack_inductor.ir.nodes import ExternCall
from fxstack_inductor.lower.host.symbols import hints
from fxstack_inductor.schedule.steps import KernelStep, Plan, Step
from fxstack_inductor.targets.triton.artifact import LoweredTriton
from fxstack_interchange.format.show import target_text


def program_of(
    captured: Captured, role: str, graph_module: GraphModule, lowered: Lowered | LoweredTriton
) -> records.Program:
    """Return the record of a compiled graph. The first call measures the CPU, which takes 0.05 seconds."""
    sizes = hints([node.meta.get("val") for node in graph_module.graph.find_nodes(op="placeholder")])
    nodes = {node.name: node for node in graph_module.graph.nodes}
    if isinstance(lowered, Lowered):
        cpu = measure_cpu()
        steps = _on_cpu(lowered.plan, nodes, sizes, cpu)
        # Sizes that only the data determine count as one, as in the traffic of steps.
        memory = memory_timeline(lowered.plan, defaultdict(lambda: 1, sizes))
        arena, moments, bandwidth = memory.arena, memory.steps, cpu.bandwidth
    else:
        steps, bandwidth = _on_gpu(lowered, nodes, sizes)
        arena, moments = 0, ()
    return records.Program(
        graph=captured.number,
        place=captured.place,
        role=role,
        kernels=lowered.kernels,
        host=lowered.host,
        steps=steps,
        refused=tuple(records.RefusedFusion(str(a), str(b), r.rule) for a, b, r in lowered.plan.refusals),
        arena_bytes=arena,
        memory=tuple(records.Moment(role, name, size) for name, size in moments),
        bandwidth=bandwidth,
    )


def _on_cpu(
    plan: Plan, nodes: Mapping[str, Node], sizes: Mapping[str, int], cpu: Cpu
) -> tuple[records.Step, ...]:
    """Return the records of kernels and calls of a CPU program, with predicted seconds."""
    records_of_steps = []
    for step in plan.steps:
        if isinstance(step, KernelStep):
            moved = kernel_traffic(step.kernel, sizes)
        elif isinstance(step, ExternCall) and step.outputs:
            moved = call_traffic(step, sizes)
        else:
            continue
        records_of_steps.append(_step(step, nodes, sizes, moved, cpu.seconds(moved)))
    return tuple(records_of_steps)


def _on_gpu(
    lowered: LoweredTriton, nodes: Mapping[str, Node], sizes: Mapping[str, int]
) -> tuple[tuple[records.Step, ...], float]:
    """Return the steps and the GPU's bandwidth; none for a GPU that the cost model does not know."""
    from fxstack_inductor.cost.devices import REACHED_BANDWIDTH, gpu_of  # noqa: PLC0415 - only on a GPU

    try:
        costs = {cost.name: cost for cost in lowered.predict()}
        bandwidth = gpu_of(lowered.target).bandwidth * REACHED_BANDWIDTH
    except ValueError:
        return (), 0.0
    records_of_steps = []
    for step in lowered.plan.steps:
        name = step.kernel.name if isinstance(step, KernelStep) else getattr(step, "name", "")
        if (cost := costs.get(name)) is not None:
            moved = Traffic(cost.read, cost.written, cost.operations)
            records_of_steps.append(_step(step, nodes, sizes, moved, (cost.seconds, cost.bound)))
    return tuple(records_of_steps), bandwidth


def _step(
    step: Step,
    nodes: Mapping[str, Node],
    sizes: Mapping[str, int],
    moved: Traffic,
    predicted: tuple[float, str],
) -> records.Step:
    """Return the record of one kernel or call, with its traffic and its predicted seconds."""
    buffers: tuple[records.Buffer, ...] = ()
    if isinstance(step, KernelStep):
        kernel = step.kernel
        name, origins, is_kernel = kernel.name, tuple(kernel.origins), True
        shown_origins = origins
        buffers = tuple(
            records.Buffer(
                ref.name, ref.name in kernel.written, size_of(ref.numel, sizes) * ref.dtype.itemsize
            )
            for ref in kernel.buffers
        )
    else:
        call: Any = step
        name, shown_origins, is_kernel = call.name, (target_text(call.target),), False
        origins = (getattr(call, "origin", "") or name,)
    return records.Step(
        name=name,
        kernel=is_kernel,
        origins=shown_origins,
        stacks=stacks_of(origins, nodes),
        buffers=buffers,
        read_bytes=moved.read,
        written_bytes=moved.written,
        operations=moved.operations,
        predicted=predicted[0],
        bound=predicted[1],
    )
