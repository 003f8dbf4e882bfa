"""The host program of a graph of Triton kernels: tensors are passed as they are, allocated by torch's own caching allocator."""

from __future__ import annotations

from typing import TYPE_CHECKING

from fxstack_inductor.codegen.wrapper import HostProgram, HostWriter, identifier, shape_text

if TYPE_CHECKING:
    from fxstack_inductor.ir.nodes import Node
    from fxstack_inductor.schedule.plan import KernelStep, Plan


def device_program(plan: Plan, functions: dict[str, str]) -> HostProgram:
    """``functions`` maps kernel names to the launchers' names."""
    return DeviceHostWriter(plan, functions).run()


class DeviceHostWriter(HostWriter):
    """What differs from the C host program: no arena of host memory, and launches instead of calls."""

    def _plan_arena(self) -> tuple[str, ...]:
        return ()

    def _kernel(self, step: KernelStep) -> None:
        for node in step.stored:
            self._allocate(node)
        kernel = step.kernel
        function = self.functions[kernel.name]
        buffers = [identifier(ref.name) for ref in kernel.buffers]
        self.arguments[function] = len(buffers) + len(kernel.sizes)
        sizes = [identifier(size) for size in kernel.sizes]
        self.line(f"{function}({', '.join([*buffers, *sizes])})")

    def _raise_errors(self) -> None:
        """Kernels assert on the device, as torch's own do; asking would wait for them."""

    def _allocate(self, node: Node) -> None:
        layout = node.layout
        dtype, device = self.constant(layout.dtype), self.constant(layout.device)
        self.line(
            f"{identifier(node.name)} = empty_strided({shape_text(layout.shape)}, "
            f"{shape_text(layout.stride)}, dtype={dtype}, device={device})"
        )
