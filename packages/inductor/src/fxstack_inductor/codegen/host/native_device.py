"""The native host program on CUDA: launches through the driver, memory from torch's caching allocator.

The program does the steps of ``codegen.host.triton_host`` in C, for graphs on one device: a launch costs the
time of the driver, a product the time of ATen. Rare cases call back into Python: unaligned inputs, results
with another layout than traced, failing allocations.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from importlib.resources import files

from fxstack_inductor.codegen.host import records
from fxstack_inductor.codegen.host.build import host_steps
from fxstack_inductor.codegen.host.names import symbols_of
from fxstack_inductor.codegen.host.native import NativePrinter
from fxstack_inductor.codegen.host.native_text import empty_tensor, returning
from fxstack_inductor.codegen.host.program import HostProgram
from fxstack_inductor.codegen.host.triton_host import ALIGNMENT, TritonPrinter, launches
from fxstack_inductor.codegen.index_text import c_index
from fxstack_inductor.runtime.cuda_driver import SOURCE
from fxstack_inductor.runtime.layout import aligned
from fxstack_inductor.runtime.native import STREAM, Refused, has_function, native_table
from fxstack_inductor.schedule.steps import Plan
from fxstack_inductor.tiling.kernels import TritonKernel

BEFORE = f"{SOURCE}\n{(files('fxstack_inductor.codegen') / 'device.h').read_text()}"
RECORDS = "launch_records"
"""The bound state: addresses of the functions' records, in the order of ``HostProgram.launched``."""


def native_device_refusal() -> str | None:
    """Return why host programs on CUDA are Python in this process; None if they are C."""
    table = native_table()
    if isinstance(table, Refused):
        return table.reason
    return None if has_function(STREAM) else f"this torch has no {STREAM}"


def native_device_program(
    plan: Plan, kernels: Mapping[str, TritonKernel], device: int, *, boxed: bool = False
) -> HostProgram:
    """Return the program of a plan on one ``device``; ``boxed``: the argument is one emptied list."""
    steps = host_steps(replace(plan, boxed=boxed), device=True)
    python = TritonPrinter(steps, {}, kernels=kernels)
    python.constants["aligned"] = aligned
    program = DevicePrinter(steps, python, boxed, device=device).program(BEFORE)
    return replace(program, launched=python.launched)


@dataclass
class DevicePrinter(NativePrinter):
    """The differences to the native program on CPU."""

    python: TritonPrinter
    device: int = 0
    """The number of the only GPU."""
    unaligned: dict[str, str] = field(default_factory=dict)
    """Places of the copies of tensors with possibly unaligned memory, by the tensors' names."""

    def head(self) -> None:
        """Write the first lines: the stream, and the records of the functions."""
        self.line("void* stream = 0;")
        if any(record.device.type == "cuda" for record in launches(self.steps)):  # only tests launch on CPU
            self.check(f"fx.{STREAM}({self.device}, &stream)")
        self.line(f"Kernel* const* const k = (Kernel**)fx.PyBytes_AsString({self.bound(RECORDS)});")

    def launch(self, record: records.Launch) -> None:
        """Write the launch of a kernel by its record, and copy updated copies back."""
        values = [b.name if b.number else f"(int64_t){self.address(b)}" for b in record.buffers]
        values += self.python.kernels[record.kernel.name].kernel.sizes
        function = self.python.function(record, len(values))
        position = list(self.python.launched).index(function.name)
        grid = c_index(function.kernel.tiling.grid)
        listed = f"(int64_t[]){{{', '.join(values) or '0'}}}"
        launch = f"fx_launch(k[{position}], stream, {grid}, {listed}, &error);"
        self.write_profiled(record.kernel.title, launch)
        for name in record.updated:
            text = "(x, copy):\n    x.copy_(copy)\n"
            place = self.unaligned[name]
            copy = f"fx_copy_back(&thread, {self.bound(self.callback(text))}, {self.handles[name]}, {place})"
            self.check(f"{place} && {copy}")

    def launch_all(self, run: Sequence[records.Launch | records.Free]) -> None:
        """Write launches one by one: each has a record of the driver."""
        for record in run:
            self.write(record)

    def address(self, buffer: records.Buffer) -> str:
        """Return a pointer to the elements; at its first use, an unaligned tensor is copied to aligned memory."""
        name, new = buffer.name, buffer.name not in self.addresses
        address = super().address(buffer)
        if new and not buffer.aligned:
            place = self.unaligned[name] = self.new_rare(name)
            copy = self.by_python(returning(["x"], "aligned(x)"), self.handles[name], (), place)
            self.line(f"if ((int64_t){address} & {ALIGNMENT - 1}) {{")
            self.line(f"void* copy = {copy};")
            self.check(f"!copy || fx_data(copy, &{address})")
            self.line("}")
        return address

    def raise_errors(self) -> None:
        """Write the exit for a launch that the driver refuses: Python raises its error."""
        self.line("if (error) {")
        self.line(f"{(code := self.new('o'))} = fx.PyLong_FromLongLong(error);")
        self.call_python("(code):\n    raise_launch_error(code)\n", [code])
        self.line("goto fail;")
        self.line("}")

    def allocate_all(self, run: Sequence[records.Allocate]) -> None:
        """Write the allocations one by one: a failing allocation calls Python."""
        for record in run:
            self.allocate(record)

    def allocate(self, record: records.Allocate) -> None:
        """Allocate memory; if that fails, Python tries again and raises eager's error."""
        name, layout = record.name, record.layout
        place, python_result = self.new("t"), self.new_rare(name)
        symbols = symbols_of((*layout.shape, *layout.stride))
        python_call = self.by_python(
            returning(symbols, self.python.empty(record)), "0", symbols, python_result
        )
        self.line(f"{place} = {empty_tensor(layout)};")
        self.declare(name, f"{place} ? {place} : {python_call}")
        self.keep_alive(name, place)
