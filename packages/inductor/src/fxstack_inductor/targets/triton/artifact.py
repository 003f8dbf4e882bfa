"""A lowered CUDA graph: the text of its kernels and host program, its predicted times, and whether it can be recorded."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import torch

from fxstack_inductor import torch_compat
from fxstack_inductor.codegen.host.program import HostProgram
from fxstack_inductor.cost.devices import gpu_of
from fxstack_inductor.cost.roofline import Cost
from fxstack_inductor.ir.expr import Expr
from fxstack_inductor.ir.nodes import Argument, ExternCall, Node
from fxstack_inductor.lower.host.draws import Draw
from fxstack_inductor.lower.host.symbols import hints
from fxstack_inductor.schedule.fusion.inlining import is_range_call
from fxstack_inductor.schedule.steps import KernelStep, Plan
from fxstack_inductor.templates.all_templates import TEMPLATES
from fxstack_inductor.tiling.kernels import TritonSource
from fxstack_interchange.format.show import short_repr
from fxstack_interchange.operators.kernel_operators import FunctionalLaunch


@dataclass(frozen=True, repr=False)
class LoweredTriton:
    """A lowered graph: the schedule, the Triton module and the host program."""

    plan: Plan
    source: TritonSource
    program: HostProgram
    values: tuple[Any, ...] = ()
    """The graph's fake inputs."""
    target: str = "cuda"
    """The GPU for predictions, for example ``cuda:sm_90``."""
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
        costs = {name: template.cost for name, template in TEMPLATES.items()}
        return model.predict(self.plan, tilings, gpu_of(target or self.target), sizes, costs)

    def report(self, target: str = "") -> str:
        """Return the predictions as a table, with the sum first."""
        from fxstack_inductor.cost import model  # noqa: PLC0415

        return model.report(self.predict(target), gpu_of(target or self.target))

    @property
    def triton(self) -> str:
        """The text of the module of kernels."""
        return self.source.text

    @property
    def kernels(self) -> str:
        """The kernels, as a module of Triton functions."""
        return self.source.text

    @property
    def host(self) -> str:
        return self.program.source


def graph_refusal(plan: Plan) -> str | None:
    """Return why ``plan`` cannot be recorded as a CUDA graph; None if it can.

    The reason is a phrase for a warning: a step that needs the host while the program runs, or a tensor on
    another device.
    """
    for step in plan.steps:
        if isinstance(step, ExternCall):
            if isinstance(step.target, Draw):
                continue  # torch gives a recording addresses of its own, whose numbers each replay sets
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
    nodes = plan_tensors(plan)
    for node in nodes:
        if node.device.type != "cuda":
            return f"tensor {node.name} is on {node.device}"
    devices = sorted({str(node.device) for node in nodes})
    return f"it spans {', '.join(devices)}" if len(devices) > 1 else None


def _by_numbers(step: ExternCall) -> bool:
    """Whether ``step`` indexes by numbers only. Then the result's size is known, unlike the size of a masked result."""
    if step.target is not torch.ops.aten.index.Tensor:
        return False
    return all(node.dtype not in {torch.bool, torch.uint8} for node in step.reads[1:])


def plan_tensors(plan: Plan) -> list[Node]:
    """Return the tensors that the program reads and makes."""
    nodes: list[Node] = list(plan.program.inputs.values())
    for step in plan.steps:
        if isinstance(step, KernelStep):
            nodes += step.stored
        elif isinstance(step, ExternCall):
            nodes += [*step.reads, *step.outputs]
    return nodes
