"""The host program of Triton kernels: torch's caching allocator provides memory, a launch takes raw pointers.

Kernels are compiled for pointers that are multiples of 16 bytes. Memory that the program allocates is
aligned. An input, or a result of an ATen call, may be an unaligned slice; kernels then use a copy. If a
kernel writes to the copy of an input, the copy is copied back.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any

import torch

from fxstack_inductor import torch_compat
from fxstack_inductor.codegen.host import records
from fxstack_inductor.codegen.host.names import identifier
from fxstack_inductor.codegen.host.program import DeviceFunction, HostProgram
from fxstack_inductor.codegen.host.python_host import PythonPrinter
from fxstack_inductor.runtime.layout import aligned
from fxstack_inductor.tiling.kernels import TritonKernel

ALIGNMENT = 16


def launches(steps: records.HostSteps) -> list[records.Launch]:
    """Return the records of launches in a program."""
    return [record for record in steps.records if isinstance(record, records.Launch)]


@dataclass
class TritonPrinter(PythonPrinter):
    """Writes programs for GPUs; ``kernels`` maps names of the plan's kernels to Triton kernels.

    Launches are ``kernel_0(record_kernel_0, stream0, programs, *pointers, *sizes)``.
    """

    kernels: Mapping[str, TritonKernel] = field(default_factory=dict)
    launched: dict[str, DeviceFunction] = field(default_factory=dict)
    """The functions that the program launches, by name, in the order of first launches."""
    pointed: set[str] = field(default_factory=set)
    """Tensors whose addresses the program has already read."""

    def __post_init__(self) -> None:
        super().__post_init__()
        self.constants["aligned"] = aligned
        self.devices = sorted({record.device.index or 0 for record in launches(self.steps)})

    def program(self, *, boxed: bool) -> HostProgram:
        return replace(super().program(boxed=boxed), launched=self.launched)

    def function(self, record: records.Launch, arguments: int) -> DeviceFunction:
        """Return the function that a launch calls, and record it with its number of ``arguments``."""
        function = DeviceFunction(self.kernels[record.kernel.name], record.device.index or 0)
        self.launched[function.name] = function
        self.arguments[function.name] = arguments
        return function

    def head(self) -> None:
        """Write the first lines: the current stream of each device."""
        self.constants["on_device"] = torch.cuda.device
        if self.devices:
            self.constants["current_stream"] = _current_stream
        for device in self.devices:
            self.line(f"stream{device} = current_stream({device})")

    def empty(self, record: records.Allocate) -> str:
        layout = record.layout
        return super().empty(record)[:-1] + f", device={self.constant(layout.device)})"

    def launch(self, record: records.Launch) -> None:
        """Write the launch of a kernel, and copy updated copies back."""
        pointers = [self._pointer(buffer) for buffer in record.buffers]
        sizes = [identifier(size) for size in self.kernels[record.kernel.name].kernel.sizes]
        function = self.function(record, len(pointers) + len(sizes))
        grid = function.kernel.tiling.grid
        head = f"{function.name}(record_{function.name}, stream{function.device}"
        # The context of a program's only device is current while the program runs.
        guard = "" if len(self.devices) < 2 else f"with on_device({function.device}): "
        self.line(f"{guard}{head}, {', '.join([str(grid), *pointers, *sizes])})")
        for name in record.updated:
            self.line(f"if p_{name} != {name}.data_ptr(): {name}.copy_(t_{name})")

    def _pointer(self, buffer: records.Buffer) -> str:
        """Return the name of the address of ``buffer``, read at its first use."""
        name = buffer.name
        if buffer.number:
            return name
        pointer = f"p_{name}"
        if name not in self.pointed:
            self.pointed.add(name)
            self.line(f"{pointer} = {name}.data_ptr()")
            if not buffer.aligned:
                self.line(f"if {pointer} & {ALIGNMENT - 1}:")
                self.line(f"    t_{name} = aligned({name}); {pointer} = t_{name}.data_ptr()")
        return pointer

    def raise_errors(self) -> None:
        """Check that every launch was accepted; the device's assertions check indices, as in eager."""
        self.line("if error.value: raise_launch_error()")


@dataclass
class InterpretedPrinter(TritonPrinter):
    """Writes programs for Triton's interpreter: launches are ``kernel_0(*tensors, *sizes)``, without streams."""

    def head(self) -> None:
        """Do nothing: there are no streams."""

    def launch(self, record: records.Launch) -> None:
        """Write the call of a kernel's function, which the interpreter runs."""
        sizes = self.kernels[record.kernel.name].kernel.sizes
        names = [*(buffer.name for buffer in record.buffers), *map(identifier, sizes)]
        function = self.function(record, len(names))
        self.line(f"{function.name}({', '.join(names)})")

    def raise_errors(self) -> None:
        """Do nothing: the interpreter raises by itself."""


def _current_stream(device: int) -> Any:
    """Return the address of torch's current stream on ``device``."""
    return torch_compat.cuda_getCurrentRawStream(device)
