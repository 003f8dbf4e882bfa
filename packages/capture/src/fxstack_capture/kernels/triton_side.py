"""All code that needs Triton: Triton's classes, and the TTIR (intermediate code) of a kernel.

Only this module imports Triton. It does so only in programs that have imported Triton themselves. The code
needs no GPU.
"""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType
from typing import Any

import torch
import triton
from triton._C.libtriton import ir, passes
from triton.backends.compiler import GPUTarget
from triton.compiler import ASTSource, make_backend
from triton.runtime.autotuner import Autotuner, Heuristics
from triton.runtime.interpreter import InterpretedFunction
from triton.runtime.jit import JITFunction
from triton.tools.tensor_descriptor import TensorDescriptor

from fxstack_capture.kernels.writes import written
from fxstack_interchange.operators.kernels import KernelArgument

ANALYSED = GPUTarget("cuda", 90, 32)
"""The target for the compilation to TTIR. The writes of a kernel do not depend on it."""
RUNNERS = (JITFunction, InterpretedFunction, Autotuner, Heuristics)
"""The classes of kernels. Each class has its own ``run``."""

__all__ = ["RUNNERS", "Autotuner", "Heuristics", "TensorDescriptor", "written_parameters"]
POINTERS = MappingProxyType(
    {
        torch.bool: "*i1",
        torch.uint8: "*u8",
        torch.int8: "*i8",
        torch.int16: "*i16",
        torch.uint16: "*u16",
        torch.int32: "*i32",
        torch.uint32: "*u32",
        torch.int64: "*i64",
        torch.uint64: "*u64",
        torch.float16: "*fp16",
        torch.bfloat16: "*bf16",
        torch.float32: "*fp32",
        torch.float64: "*fp64",
        torch.float8_e4m3fn: "*fp8e4nv",
        torch.float8_e5m2: "*fp8e5",
    }
)
"""The pointer types of tensors, in Triton's notation."""


def written_parameters(
    kernel: Any, values: Mapping[str, Any], kinds: Mapping[str, KernelArgument]
) -> frozenset[str]:
    """Return the names of the parameters that ``kernel`` writes to.

    ``values`` are the arguments, which may be fakes. ``kinds`` has the records of the passed arguments. A
    parameter that is not in ``kinds`` has its default, or the value of a configuration. A function of
    Triton's interpreter has no TTIR, so all passed tensors count as written.
    """
    if isinstance(kernel, InterpretedFunction):
        return frozenset(kinds)
    signature: dict[str, str] = {}
    constants: dict[tuple[int], Any] = {}
    for position, name in enumerate(kernel.arg_names):
        signature[name] = _type_in_triton(kinds.get(name), values[name])
        if signature[name] == "constexpr":
            value = values[name]
            constants[(position,)] = value.value if isinstance(value, triton.language.constexpr) else value
    module, _context = module_of(kernel, signature, constants)
    widths = {n: _width(kinds.get(n), kind) for n, kind in signature.items()}
    names = [name for name, width in widths.items() for _ in range(width)]
    positions = written(module, len(names))
    return frozenset(kinds) if positions is None else frozenset(names[k] for k in positions)


def _type_in_triton(argument: KernelArgument | None, value: Any) -> str:
    """Return Triton's type of a parameter for the compilation to TTIR, for example ``*fp32`` or ``constexpr``."""
    kind = "constant" if argument is None else argument.kind
    if kind == "tensor":
        return POINTERS[value.dtype]
    if kind == "descriptor":
        block = ",".join(map(str, value.block_shape))
        return f"tensordesc<{POINTERS[value.base.dtype][1:]}[{block}]>"
    return {"integer": "i64", "number": "fp32"}.get(kind, "constexpr")


def _width(argument: KernelArgument | None, kind: str) -> int:
    """Return how many arguments of the compiled function represent one parameter.

    ``kind`` is the parameter's type in Triton. A descriptor has additional arguments for shapes and strides.
    A constant has none.
    """
    if kind == "constexpr":
        return 0
    if argument is not None and argument.kind == "descriptor":
        return 1 + 2 * len(argument.value.block)
    return 1


def module_of(kernel: object, signature: dict[str, str], constants: dict[Any, Any]) -> Any:
    """Return the kernel's TTIR after inlining calls, and the context that owns the TTIR.

    ``signature`` maps parameters to Triton's type names. ``constants`` has the values of the ``"constexpr"``
    parameters.
    """
    source = ASTSource(fn=kernel, signature=signature, constexprs=constants)
    backend = make_backend(ANALYSED)
    context = ir.context()
    ir.load_dialects(context)
    backend.load_dialects(context)
    options = backend.parse_options({})
    implementation = backend.get_codegen_implementation(options)
    modules = backend.get_module_map()
    module = source.make_ir(ANALYSED, options, implementation, modules, context)
    manager = ir.pass_manager(context)
    passes.common.add_inliner(manager)
    manager.run(module, "inline")
    return module, context
