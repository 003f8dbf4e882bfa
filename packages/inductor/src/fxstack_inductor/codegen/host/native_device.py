"""The native host program on CUDA: launches through the driver, memory from torch's caching allocator.

The program does the steps of ``codegen.host.triton_host`` in C, for graphs on one device: a launch costs the
time of the driver, a product the time of ATen. Rare cases call back into Python: unaligned inputs, results
with another layout than traced, failing allocations.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from functools import cached_property
from importlib.resources import files

from fxstack_inductor.codegen.host.native import NativeWriter
from fxstack_inductor.codegen.host.native_program import NativeProgram
from fxstack_inductor.codegen.host.native_results import symbols_of
from fxstack_inductor.codegen.host.native_text import empty_tensor
from fxstack_inductor.codegen.host.python_host import identifier, shape_text
from fxstack_inductor.codegen.host.triton_host import ALIGNMENT, DeviceHostWriter, launch_of
from fxstack_inductor.codegen.index_text import c_index
from fxstack_inductor.codegen.triton.module import TritonKernel
from fxstack_inductor.ir.nodes import Argument, Computed, ExternCall, Node
from fxstack_inductor.runtime.cuda_driver import SOURCE
from fxstack_inductor.runtime.layout import aligned
from fxstack_inductor.runtime.native import STREAM, Refused, has_function, native_table
from fxstack_inductor.schedule.plan import KernelStep, Plan

BEFORE = f"{SOURCE}\n{(files('fxstack_inductor.codegen') / 'device.h').read_text()}"
RECORDS = "launch_records"
"""The bound state: addresses of the kernels' records, in the order of ``NativeDeviceProgram.launched``."""


@dataclass(frozen=True)
class NativeDeviceProgram(NativeProgram):
    """``launched`` names the launches in the order of ``RECORDS``."""

    launched: tuple[str, ...]


def native_device_refusal() -> str | None:
    """Return why host programs on CUDA are Python in this process, or None."""
    table = native_table()
    if isinstance(table, Refused):
        return table.reason
    return None if has_function(STREAM) else f"this torch has no {STREAM}"


def native_device_program(
    plan: Plan, functions: Mapping[str, TritonKernel], device: int, *, boxed: bool = False
) -> NativeDeviceProgram:
    """Return the program of a plan on one ``device``; ``boxed``: the argument is one emptied list."""
    return DeviceWriter(plan, {}, boxed, triton=functions, device=device).written()


@dataclass
class DeviceWriter(NativeWriter):
    """The differences to the native program on CPU."""

    triton: Mapping[str, TritonKernel] = field(default_factory=dict)
    device: int = 0
    launched: dict[str, int] = field(default_factory=dict)
    """Positions of launches in ``RECORDS``."""
    unaligned: dict[str, str] = field(default_factory=dict)
    """Places of the copies of tensors with possibly unaligned memory, by the tensors' names."""
    nodes: dict[str, Node] = field(default_factory=dict)
    """The tensors that kernels take, by name."""

    def written(self) -> NativeDeviceProgram:
        made = self.run()
        return NativeDeviceProgram(**vars(made), launched=tuple(self.launched))

    def _python(self) -> DeviceHostWriter:
        self.host = DeviceHostWriter(self.plan, {}, triton=self.triton)
        self.host.constants["aligned"] = aligned
        return self.host

    def _before(self) -> str:
        return BEFORE

    def _head(self) -> None:
        self.line("void* stream = 0;")
        if any(node.device.type == "cuda" for node in self._stored()):  # only tests have tensors on CPU
            self.check(f"fx.{STREAM}({self.device}, &stream)")
        records = f"fx.PyTuple_GetItem(self, {self._state(RECORDS)})"
        self.line(f"Kernel* const* const k = (Kernel**)fx.PyBytes_AsString({records});")

    def _stored(self) -> Iterator[Node]:
        """Yield the tensors that the program's kernels store or read."""
        for step in self.plan.steps:
            if isinstance(step, KernelStep):
                yield from (*step.stored, *step.reads)

    @cached_property
    def _checked(self) -> bool:
        """Return False: index checks are device assertions; the program is never run again."""
        return False

    # --- launches ---------------------------------------------------------------------------------------

    def _kernel(self, step: KernelStep) -> None:
        self._lock(False)
        for node in step.stored:
            self._allocate(node)
        self.nodes.update({node.name: node for node in (*step.stored, *step.reads)})
        launch = launch_of(step, self.triton)
        values = [self._argument(ref.name) for ref in step.kernel.buffers]
        values += launch.kernel.kernel.sizes
        self.python.arguments[launch.name] = len(values)
        position = self.launched.setdefault(launch.name, len(self.launched))
        grid = c_index(launch.kernel.tiling.grid)
        listed = f"(int64_t[]){{{', '.join(values) or '0'}}}"
        self.line(f"fx_launch(k[{position}], stream, {grid}, {listed}, &error);")
        for changed in step.reads:
            place = self.unaligned.get(changed.name)
            if place and changed.name in step.kernel.written:
                self._copy_back(changed.name, place)

    def _argument(self, name: str) -> str:
        if isinstance(self.nodes[name], Argument):
            return identifier(name)
        return f"(int64_t){self._address(name)}"

    def _address(self, name: str) -> str:
        new = identifier(name) not in self.addresses
        address = super()._address(name)
        node = self.nodes[name]
        if new and not isinstance(node, Computed):
            place = self.unaligned[name] = self._rare(identifier(name))
            made = self._by_python("def {name}(x):\n    return (aligned(x),)\n", name, (), place)
            self.line(f"if ((int64_t){address} & {ALIGNMENT - 1}) {{")
            self.line(f"void* copy = {made};")
            self.check(f"!copy || fx_data(copy, &{address})")
            self.line("}")
        return address

    def _copy_back(self, name: str, place: str) -> None:
        text = "def {name}(x, copy):\n    x.copy_(copy)\n"
        function = f"fx.PyTuple_GetItem(self, {self._state(self._callback(text))})"
        handle = self.handles[identifier(name)]
        self.check(f"{place} && fx_copy_back(&thread, {function}, {handle}, {place})")

    def _raise_errors(self) -> None:
        self._lock(True)
        if self.launched:
            self.line("if (error) {")
            self.line(f"{(code := self._new('o'))} = fx.PyLong_FromLongLong(error);")
            self._call("def {name}(code):\n    raise_launch_error(code)\n", [code], "", 0)
            self.line("goto fail;")
            self.line("}")

    def _symbols(self) -> set[str]:
        """Return the symbols, including host numbers that kernels take as arguments."""
        steps = (step for step in self.plan.steps if isinstance(step, ExternCall))
        numbers = {identifier(o.name) for s in steps for o in s.outputs if isinstance(o, Argument)}
        return super()._symbols() | numbers

    # --- memory -----------------------------------------------------------------------------------------

    def _allocate(self, node: Node) -> None:
        """Allocate ``node``; if that fails, Python tries again and raises eager's error."""
        own, layout = identifier(node.name), node.layout
        place, kept = self._new("t"), self._rare(own)
        shape, stride = shape_text(layout.shape), shape_text(layout.stride)
        symbols = symbols_of((*layout.shape, *layout.stride))
        dtype, device = self.python.constant(layout.dtype), self.python.constant(layout.device)
        text = (
            f"def {{name}}({', '.join(symbols)}):\n"
            f"    return (empty_strided({shape}, {stride}, dtype={dtype}, device={device}),)\n"
        )
        again = self._by_python(text, "", symbols, kept)
        self.line(f"{place} = {empty_tensor(layout)};")
        self._declare(own, f"{place} ? {place} : {again}")
        self._own(own, place)
