"""The timer of a real device, with torch's events and this package's launcher."""

from __future__ import annotations

import statistics
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import torch

from fxstack_inductor import torch_compat
from fxstack_inductor.autotune.candidates import Fill
from fxstack_inductor.codegen.triton import ops as triton_ops
from fxstack_inductor.options import InductorOptions
from fxstack_inductor.runtime.cubins import Cubin, compile_each, triton_version
from fxstack_inductor.runtime.cuda_driver import Driver, Launchers
from fxstack_inductor.tiling.kernels import TritonKernel, TritonSource
from fxstack_inductor.torch_compat import disable_current_modes as _disable_current_modes

TIMED_RUNS = 12
FLUSHED_BYTES = 1 << 27
"""Bytes written between runs, so that no run finds its operands in the L2 cache."""


def machine_name(device: int) -> str:
    """Return what times depend on: the device, and the versions of the driver, torch's CUDA and Triton."""
    properties = torch.cuda.get_device_properties(device)
    driver, cuda = Driver().version(), torch.version.cuda
    return f"{properties.name}-driver{driver}-cuda{cuda}-triton{triton_version()}"


@dataclass(frozen=True)
class DeviceTimer:
    """Times kernels on device number ``device`` of compute capability ``capability``.

    A time is the median of several runs, in seconds.
    """

    device: int
    capability: int
    options: InductorOptions

    def compile(self, kernels: Sequence[TritonKernel]) -> Mapping[str, Cubin | str]:
        """Compile ``kernels``; return kernel name -> machine code, or a text that says why there is no machine code."""
        text = "\n\n".join([triton_ops.PRELUDE, *(kernel.text for kernel in kernels)]) + "\n"
        source = TritonSource(text, {kernel.name: kernel for kernel in kernels})
        return compile_each(source, self.capability, self.options)

    def kernel(self, kernel: TritonKernel, cubin: Cubin) -> float:
        """Return the time of a launch.

        Raises:
            CudaError: the driver rejects the kernel.
            RuntimeError: there is too little memory.
        """
        with self._apart():
            return self._kernel(kernel, cubin)

    def _kernel(self, kernel: TritonKernel, cubin: Cubin) -> float:
        """Allocate operands, launch once to find errors, and return the time of a launch."""
        launchers = Launchers(Driver(), self.options)
        buffers = [self._filled(ref.numel.as_int() or 1, ref.dtype) for ref in kernel.kernel.buffers]
        record, launch = launchers.add(cubin, len(buffers), self.device)
        grid = kernel.tiling.grid.as_int() or 1
        pointers = [buffer.data_ptr() for buffer in buffers]
        stream = torch_compat.cuda_getCurrentRawStream(self.device)
        launch(record, stream, grid, *pointers)
        launchers.check()
        return self._median(lambda: launch(record, stream, grid, *pointers))

    def calls(self, calls: Callable[[Fill], Iterable[Callable[[], object]]]) -> float:
        """Return the sum of the times of the functions that ``calls(fill)`` returns. ``fill`` makes operands.

        Raises:
            RuntimeError: there is too little memory.
        """
        with self._apart():
            return sum(map(self._median, calls(self._filled)))

    @contextmanager
    def _apart(self) -> Iterator[None]:
        """Switch off the program's modes, such as autocast: compilation happens in the middle of the program."""
        off = torch.autocast("cuda", enabled=False)
        with torch.cuda.device(self.device), _disable_current_modes(), torch.no_grad(), off:
            yield

    @property
    def _place(self) -> torch.device:
        return torch.device("cuda", self.device)

    @cached_property
    def _scratch(self) -> torch.Tensor:
        return torch.empty(FLUSHED_BYTES, dtype=torch.int8, device=self._place)

    def _filled(self, count: int, dtype: torch.dtype) -> torch.Tensor:
        """Return a tensor of ``count`` small numbers, as in real products; zeros for integers, which may be indices."""
        if not dtype.is_floating_point:
            return torch.zeros(count, dtype=dtype, device=self._place)
        generator = torch.Generator(self._place).manual_seed(0)  # the program's generator stays untouched
        return torch.rand(count, device=self._place, generator=generator).sub_(0.5).to(dtype)

    def _median(self, run: Callable[[], Any]) -> float:
        """Return the median time of ``run`` in seconds, after one call that is not timed."""
        run()
        times: list[float] = []
        for _ in range(TIMED_RUNS):
            self._scratch.zero_()
            start, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
            start.record()
            run()
            end.record()
            end.synchronize()
            times.append(start.elapsed_time(end) / 1e3)
        return statistics.median(times)
