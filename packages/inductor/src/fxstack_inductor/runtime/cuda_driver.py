"""The CUDA driver through ctypes: loads machine code and makes kernels, without torch.cuda or Triton."""

from __future__ import annotations

import ctypes
from dataclasses import dataclass, field
from functools import cached_property
from importlib.resources import files
from typing import Any

from fxstack_inductor.errors import CudaError
from fxstack_inductor.options import InductorOptions
from fxstack_inductor.runtime.cubins import Cubin
from fxstack_inductor.runtime.loader import load_functions

SOURCE = (files("fxstack_inductor.runtime") / "launch.c").read_text()
MOST_ARGUMENTS = 254
"""The largest number of arguments that ``launch.c`` supports."""
STATIC_SHARED = 48 * 1024
"""Bytes of shared memory that a kernel gets without a request."""
MAX_DYNAMIC_SHARED = 8
"""``CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES``."""


class Record(ctypes.Structure):
    """The arguments of a launch that never change: the C type ``Kernel`` in ``launch.c``, field by field."""

    _fields_ = (
        ("function", ctypes.c_void_p),
        ("context", ctypes.c_void_p),
        ("launch", ctypes.c_void_p),
        ("set_context", ctypes.c_void_p),
        ("error", ctypes.c_void_p),
        ("threads", ctypes.c_uint32),
        ("shared", ctypes.c_uint32),
        ("arguments", ctypes.c_uint32),
        ("parameters", ctypes.c_uint32),
    )


@dataclass
class Launchers:
    """Kernels of one graph on their devices. ``error`` keeps the driver's first error code for ``check``."""

    driver: Driver
    options: InductorOptions
    error: ctypes.c_int32 = field(default_factory=lambda: ctypes.c_int32(0))
    records: list[Record] = field(default_factory=list)
    """Records, kept alive because the launch functions hold their addresses."""

    def add(self, cubin: Cubin, arguments: int, device: int) -> tuple[int, Any]:
        """Load ``cubin``; return its record's address and the function(record, stream, grid, *arguments).

        Raises:
            CudaError: the driver rejects the machine code, or a launch cannot provide the kernel's needs.
        """
        record = self.record(cubin, arguments, device)
        name = "fxstack_launch"
        return record, load_functions(SOURCE, {name: arguments + 3}, self.options)[name]

    def record(self, cubin: Cubin, arguments: int, device: int) -> int:
        """Return the address of the record with which ``launch.c`` launches ``cubin``; raise like ``add``."""
        if cubin.scratch or arguments > MOST_ARGUMENTS or cubin.parameters < arguments:
            raise CudaError(
                f"kernel {cubin.symbol}: {arguments} arguments for {cubin.parameters} parameters and "
                f"{cubin.scratch} bytes of scratch memory; this is a defect of fxstack-inductor, please report it"
            )
        context = self.driver.context(device)
        record = Record(
            self.driver.load(cubin, context),
            context,
            self.driver.address("cuLaunchKernel"),
            self.driver.address("cuCtxSetCurrent"),
            ctypes.addressof(self.error),
            cubin.threads,
            cubin.shared,
            arguments,
            cubin.parameters,
        )
        self.records.append(record)
        return ctypes.addressof(record)

    def check(self) -> None:
        """Raise the error that a launch since the last check met, if any.

        Raises:
            CudaError: with the driver's name of the error.
        """
        if self.error.value:
            code, self.error.value = self.error.value, 0
            self.refuse(code)

    def refuse(self, code: int) -> None:
        """Raise the error ``code`` of a launch.

        Raises:
            CudaError: with the driver's name of the error.
        """
        raise CudaError(f"a kernel could not be launched: {self.driver.describe(code)}")


@dataclass(frozen=True)
class Driver:
    """``libcuda``, or another library with the same functions."""

    path: str = "libcuda.so.1"

    @cached_property
    def library(self) -> ctypes.CDLL:
        """The loaded driver, initialised at the first use."""
        try:
            library = ctypes.CDLL(self.path)
        except OSError as error:
            raise CudaError(
                f"the CUDA driver cannot be loaded ({error}); install NVIDIA's driver, or run on CPU"
            ) from error
        self._check(library.cuInit(0), library)
        return library

    def address(self, name: str) -> int:
        """Return the address of the driver's function ``name``, for ``launch.c``."""
        return ctypes.cast(self.library[name], ctypes.c_void_p).value or 0

    def version(self) -> int:
        """Return the newest CUDA version that the driver supports, as 13000 for 13.0."""
        version = ctypes.c_int()
        self._check(self.library.cuDriverGetVersion(ctypes.byref(version)))
        return version.value

    def context(self, device: int) -> int:
        """Return the primary context of device number ``device``, which torch uses too."""
        handle, context = ctypes.c_int(), ctypes.c_void_p()
        self._check(self.library.cuDeviceGet(ctypes.byref(handle), device))
        self._check(self.library.cuDevicePrimaryCtxRetain(ctypes.byref(context), handle))
        return context.value or 0

    def load(self, cubin: Cubin, context: int) -> int:
        """Return the kernel's function in ``context``; the kernel's module stays loaded."""
        module, function, previous = ctypes.c_void_p(), ctypes.c_void_p(), ctypes.c_void_p()
        library = self.library
        self._check(library.cuCtxPushCurrent_v2(ctypes.c_void_p(context)))
        try:
            self._check(library.cuModuleLoadData(ctypes.byref(module), cubin.image))
            self._check(library.cuModuleGetFunction(ctypes.byref(function), module, cubin.symbol.encode()))
            if cubin.shared > STATIC_SHARED:
                self._check(library.cuFuncSetAttribute(function, MAX_DYNAMIC_SHARED, cubin.shared))
        finally:
            library.cuCtxPopCurrent_v2(ctypes.byref(previous))
        return function.value or 0

    def describe(self, code: int) -> str:
        """Return an error code as text, with the driver's own words."""
        text = ctypes.c_char_p()
        self.library.cuGetErrorString(code, ctypes.byref(text))
        return f"{(text.value or b'unknown error').decode()} (CUDA error {code})"

    def _check(self, code: int, library: ctypes.CDLL | None = None) -> None:
        """Raise ``CudaError`` unless ``code`` is 0; ``library`` is given before the driver is initialised."""
        if code:
            described = f"CUDA error {code}" if library is not None else self.describe(code)
            raise CudaError(f"the CUDA driver failed: {described}")
