"""The code that needs Triton: loading generated modules, compiling ahead of time, interpreting.

Triton is an optional dependency (``fxstack-inductor[cuda]``). Beside the worker ``triton_worker``, only this
module imports it.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable
from functools import lru_cache
from pathlib import Path
from types import MappingProxyType
from typing import Any

import numpy as np
import torch
import triton
from triton.runtime import interpreter
from triton.runtime.interpreter import interpreter_builder

from fxstack_inductor.runtime.loader import write_whole
from fxstack_inductor.runtime.triton_worker import import_file
from fxstack_inductor.tiling.kernels import FLOAT8_NAMES, TritonKernel


def load_module(text: str, folder: Path) -> Any:
    """Import generated source from a file named by its content; Triton reads the source back from the file.

    If Triton was imported with ``TRITON_INTERPRET=1``, kernels run in Triton's interpreter, on CPU.
    """
    name = f"fxstack_{hashlib.sha256(text.encode()).hexdigest()[:24]}"
    path = folder / f"{name}.py"
    if not path.exists() or path.read_text() != text:
        write_whole(path, text)
    module = import_file(path, name)
    if triton.knobs.runtime.interpret:
        module.libdevice = NumpyLibdevice()
        _mend_comparisons()
        _mend_products()
        _mend_bounds()
    return module


@lru_cache(maxsize=1)
def _mend_comparisons() -> None:
    """Give scalar comparisons type int1, as on a GPU; the interpreter's keep the operands' type."""
    builder = interpreter_builder
    original = builder.binary_op

    def binary_op(left: object, right: object, op: object) -> Any:
        """Return the interpreter's result, booleans with type int1."""
        result = original(left, right, op)
        if np.asarray(result.data).dtype == np.bool_:
            return type(result)(result.data, triton.language.int1)
        return result

    builder.binary_op = binary_op


@lru_cache(maxsize=1)
def _mend_products() -> None:
    """Multiply bfloat16 matrices as numbers; the interpreter multiplies the integers of their bits."""
    builder = interpreter_builder
    original = builder.create_dot

    def create_dot(left: object, right: object, *rest: object) -> Any:
        return original(_widened(left), _widened(right), *rest)

    builder.create_dot = create_dot


@lru_cache(maxsize=1)
def _mend_bounds() -> None:
    """Make loop bounds integers: NumPy 2.4 and later rejects arrays of one element (newer Tritons know)."""
    original = interpreter._patch_lang_tensor

    def patch(tensor: torch.Tensor, *rest: object) -> None:
        original(tensor, *rest)
        tensor.__index__ = lambda self: int(np.asarray(self.handle.data).item())

    interpreter._patch_lang_tensor = patch


def _widened(handle: Any) -> Any:
    """Return a tensor of the interpreter with bfloat16 bits as float32 numbers."""
    if handle.dtype.scalar is not triton.language.bfloat16:
        return handle
    bits = handle.data.astype(np.uint32) << 16
    return type(handle)(bits.view(np.float32), triton.language.float32)


def interpreter_launch(kernel: TritonKernel, function: Any) -> Callable[..., None]:
    """Return a callable of the kernel's tensors and sizes that runs in Triton's interpreter."""
    buffers, sizes = len(kernel.kernel.buffers), kernel.kernel.sizes
    constants, warps = kernel.constants, kernel.config.num_warps

    def launch(*args: Any) -> None:
        """Run the kernel for every program of its grid."""
        count = kernel.tiling.grid.evaluate(dict(zip(sizes, args[buffers:], strict=True)))
        if count > 0:
            function[(count, 1, 1)](*map(_bytes, args), **constants, num_warps=warps)

    return launch


def _bytes(argument: object) -> Any:
    """Return the argument for a kernel: 8-bit floats are passed as bytes."""
    if not isinstance(argument, torch.Tensor) or argument.dtype not in FLOAT8_NAMES:
        return argument
    return argument.view(torch.uint8)


class NumpyLibdevice:
    """libdevice for Triton's interpreter, which has none: functions of NumPy (or torch) on arrays."""

    _SPECIAL = MappingProxyType(
        {"erf": torch.erf, "erfc": torch.erfc, "lgamma": torch.lgamma, "rsqrt": torch.rsqrt}
    )
    _NAMES = MappingProxyType(
        {
            "acos": "arccos",
            "asin": "arcsin",
            "atan": "arctan",
            "acosh": "arccosh",
            "asinh": "arcsinh",
            "atanh": "arctanh",
            "atan2": "arctan2",
            "pow": "float_power",
            "nearbyint": "rint",
        }
    )

    def __getattr__(self, name: str) -> Callable[..., Any]:
        def function(*args: object) -> Any:
            """Apply the function to tensors of the interpreter."""
            tensors = [arg if hasattr(arg, "handle") else None for arg in args]
            model = next(t for t in tensors if t is not None)
            arrays = [
                arg if tensor is None else tensor.handle.data
                for arg, tensor in zip(args, tensors, strict=True)
            ]
            with np.errstate(all="ignore"):
                return _like(model, self._compute(name, arrays))

        return function

    def _compute(self, name: str, arrays: list[Any]) -> Any:
        """Return the result of a libdevice function on arrays."""
        if name in self._SPECIAL:
            return self._SPECIAL[name](torch.from_numpy(np.ascontiguousarray(arrays[0]))).numpy()
        return getattr(np, self._NAMES.get(name, name))(*arrays)


def _like(model: Any, array: Any) -> Any:
    """Wrap a NumPy array in an interpreter tensor with the element type of ``model``."""
    handle = type(model.handle)(np.asarray(array).astype(model.handle.data.dtype), model.handle.dtype)
    kind = model.dtype
    shape = list(np.shape(array))
    block = triton.language.block_type(kind, shape) if shape else kind
    return triton.language.tensor(handle, block)
