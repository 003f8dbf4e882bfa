"""The host program of a graph of Triton kernels: torch's caching allocator gives the memory, a launch takes raw pointers.

Kernels are compiled for pointers that are multiples of 16 bytes. What the program allocates is; an input, or a tensor that an
ATen call returns, may be a slice that is not, and is then read from a copy; what is written to the copy of an input is copied
back.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from functools import cached_property
from typing import TYPE_CHECKING, Any

import torch

from fxstack_inductor import torch_compat
from fxstack_inductor.codegen.host.python_host import HostProgram, HostWriter, identifier, shape_text
from fxstack_inductor.ir.nodes import Argument, Computed, Node
from fxstack_inductor.runtime.layout import aligned
from fxstack_inductor.schedule.plan import KernelStep

if TYPE_CHECKING:
    from collections.abc import Mapping

    from fxstack_inductor.codegen.triton.module import TritonKernel
    from fxstack_inductor.ir.nodes import ExternCall
    from fxstack_inductor.schedule.plan import Plan

ALIGNMENT = 16


@dataclass(frozen=True, slots=True)
class Launch:
    """A function of the host program: kernel ``kernel`` on device number ``device``."""

    kernel: TritonKernel
    device: int

    @property
    def name(self) -> str:
        return self.kernel.name if not self.device else f"{self.kernel.name}_on{self.device}"


def device_program(plan: Plan, functions: Mapping[str, TritonKernel], *, boxed: bool = False) -> HostProgram:
    """``functions`` maps names of the plan's kernels to Triton's.

    Launches are ``kernel_0(record_kernel_0, stream0, programs, *pointers, *sizes)``.
    """
    return DeviceHostWriter(plan, {}, boxed=boxed, triton=functions).run()


def interpreted_program(
    plan: Plan, functions: Mapping[str, TritonKernel], *, boxed: bool = False
) -> HostProgram:
    """The same for Triton's interpreter: launches are ``kernel_0(*tensors, *sizes)``."""
    return InterpretedHostWriter(plan, {}, boxed=boxed, triton=functions).run()


def launches(plan: Plan, functions: Mapping[str, TritonKernel]) -> dict[str, Launch]:
    """What the host program calls, by name."""
    found = (launch_of(step, functions) for step in plan.steps if isinstance(step, KernelStep))
    return {launch.name: launch for launch in found}


def launch_of(step: KernelStep, functions: Mapping[str, TritonKernel]) -> Launch:
    """What the host program calls for ``step``."""
    return Launch(functions[step.kernel.name], _index(_written_by(step)))


def _written_by(step: KernelStep) -> Node:
    """One of the tensors that a launch writes to; a scatter writes to one that it reads."""
    return (*step.stored, *(node for node in step.reads if node.name in step.kernel.written))[0]


def _index(node: Node) -> int:
    return node.device.index or 0


@dataclass
class DeviceHostWriter(HostWriter):
    """What differs from the C host program: no arena of host memory, and launches instead of calls."""

    triton: Mapping[str, TritonKernel] = field(default_factory=dict)
    pointed: set[str] = field(default_factory=set)
    """Tensors whose addresses the program has already taken."""

    def run(self) -> HostProgram:
        self.constants["aligned"] = aligned
        return super().run()

    @cached_property
    def only_device(self) -> bool:
        """Whether all launches go to one device, whose context is current while the program runs."""
        steps = (step for step in self.plan.steps if isinstance(step, KernelStep))
        return len({_index(_written_by(step)) for step in steps}) < 2

    def _plan_arena(self) -> tuple[str, ...]:
        return ()

    def _head(self) -> list[str]:
        devices = sorted({_index(_written_by(s)) for s in self.plan.steps if isinstance(s, KernelStep)})
        self.constants["on_device"] = torch.cuda.device
        if devices:
            self.constants["current_stream"] = _current_stream
        return [f"    stream{d} = current_stream({d})" for d in devices]

    def _kernel(self, step: KernelStep) -> None:
        for node in step.stored:
            self._allocate(node)
        nodes = {node.name: node for node in (*step.stored, *step.reads)}
        pointers = [self._pointer(nodes[ref.name]) for ref in step.kernel.buffers]
        launch = launch_of(step, self.triton)
        sizes = [identifier(size) for size in launch.kernel.kernel.sizes]
        self.arguments[launch.name] = len(pointers) + len(sizes)
        grid = launch.kernel.tiling.grid
        count = grid.as_int()
        values = [str(grid) if count is None else str(count), *pointers, *sizes]
        head = f"{launch.name}(record_{launch.name}, stream{launch.device}"
        guard = "" if self.only_device else f"with on_device({launch.device}): "
        self.line(f"{guard}{head}, {', '.join(values)})")
        for changed in step.reads:
            if changed.name in step.kernel.written and not isinstance(changed, Computed):
                self._copy_back(identifier(changed.name))

    def _copy_back(self, own: str) -> None:
        self.line(f"if p_{own} != {own}.data_ptr(): {own}.copy_(t_{own})")

    def _pointer(self, node: Node) -> str:
        """The name of ``node``'s address, taken where it is first needed."""
        own = identifier(node.name)
        if isinstance(node, Argument):
            return own
        pointer = f"p_{own}"
        if own not in self.pointed:
            self.pointed.add(own)
            self.line(f"{pointer} = {own}.data_ptr()")
            if not isinstance(node, Computed):
                self.line(f"if {pointer} & {ALIGNMENT - 1}:")
                self.line(f"    t_{own} = aligned({own}); {pointer} = t_{own}.data_ptr()")
        return pointer

    def _draws(self, step: ExternCall) -> bool:  # noqa: ARG002 - it overrides
        """Nothing is linked into this program: tensors on CPU beside the device's are left to ATen."""
        return False

    def _raise_errors(self) -> None:
        """Index checks are the device's own assertions, as in eager; what is asked is whether every launch was accepted."""
        if self.arguments:
            self.line("if error.value: raise_launch_error()")

    def _allocate(self, node: Node) -> None:
        layout = node.layout
        dtype, device = self.constant(layout.dtype), self.constant(layout.device)
        self.line(
            f"{identifier(node.name)} = empty_strided({shape_text(layout.shape)}, "
            f"{shape_text(layout.stride)}, dtype={dtype}, device={device})"
        )


@dataclass
class InterpretedHostWriter(DeviceHostWriter):
    """Triton's interpreter takes tensors, and there are no streams."""

    def _head(self) -> list[str]:
        return []

    def _kernel(self, step: KernelStep) -> None:
        for node in step.stored:
            self._allocate(node)
        launch = launch_of(step, self.triton)
        names = [*(ref.name for ref in step.kernel.buffers), *launch.kernel.kernel.sizes]
        self.arguments[launch.name] = len(names)
        self.line(f"{launch.name}({', '.join(map(identifier, names))})")

    def _raise_errors(self) -> None:
        """The interpreter raises by itself."""


def _current_stream(device: int) -> Any:
    return torch_compat.cuda_getCurrentRawStream(device)
