"""The host program of Triton kernels: torch's caching allocator provides memory, a launch takes raw pointers.

Kernels are compiled for pointers that are multiples of 16 bytes. Memory that the program allocates is
aligned. An input, or a result of an ATen call, may be an unaligned slice; kernels then use a copy. If a
kernel writes to the copy of an input, the copy is copied back.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

import torch

from fxstack_inductor import torch_compat
from fxstack_inductor.codegen.host.python_host import HostProgram, HostWriter, identifier, shape_text
from fxstack_inductor.codegen.triton.module import TritonKernel
from fxstack_inductor.ir.nodes import Argument, Computed, ExternCall, Node
from fxstack_inductor.runtime.layout import aligned
from fxstack_inductor.schedule.plan import KernelStep, Plan

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
    """Return the program; ``functions`` maps names of the plan's kernels to Triton kernels.

    Launches are ``kernel_0(record_kernel_0, stream0, programs, *pointers, *sizes)``.
    """
    return DeviceHostWriter(plan, {}, boxed=boxed, triton=functions).run()


def interpreted_program(
    plan: Plan, functions: Mapping[str, TritonKernel], *, boxed: bool = False
) -> HostProgram:
    """Return the program for Triton's interpreter: launches are ``kernel_0(*tensors, *sizes)``."""
    return InterpretedHostWriter(plan, {}, boxed=boxed, triton=functions).run()


def launches(plan: Plan, functions: Mapping[str, TritonKernel]) -> dict[str, Launch]:
    """Return the launches that the host program makes, by name."""
    found = (launch_of(step, functions) for step in plan.steps if isinstance(step, KernelStep))
    return {launch.name: launch for launch in found}


def launch_of(step: KernelStep, functions: Mapping[str, TritonKernel]) -> Launch:
    """Return the launch of ``step``."""
    return Launch(functions[step.kernel.name], _index(_written_by(step)))


def _written_by(step: KernelStep) -> Node:
    """Return one of the tensors that a launch writes to; a scatter writes to a tensor that it also reads."""
    return (*step.stored, *(node for node in step.reads if node.name in step.kernel.written))[0]


def _index(node: Node) -> int:
    return node.device.index or 0


@dataclass
class DeviceHostWriter(HostWriter):
    """The differences to the C host program: no arena of host memory, and launches instead of calls."""

    triton: Mapping[str, TritonKernel] = field(default_factory=dict)
    pointed: set[str] = field(default_factory=set)
    """Tensors whose addresses the program has already read."""

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
        """Return the name of ``node``'s address, read at its first use."""
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
        """Return False: no host function is linked into this program; CPU tensors are left to ATen."""
        return False

    def _raise_errors(self) -> None:
        """Check that every launch was accepted; the device's assertions check indices, as in eager."""
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
    """Writes programs for Triton's interpreter, which takes tensors and has no streams."""

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
        """Do nothing: the interpreter raises by itself."""


def _current_stream(device: int) -> Any:
    return torch_compat.cuda_getCurrentRawStream(device)
