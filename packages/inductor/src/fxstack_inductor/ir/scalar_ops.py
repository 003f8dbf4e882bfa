"""The table of scalar operations: the properties that lowering, scheduling and both targets share.

A row describes an operation. Its text for a target is in that target's table (``codegen/c/ops.py``,
``codegen/triton/ops.py``); an operation that a math library has under the same name needs no entry there.
"""

from __future__ import annotations

from dataclasses import dataclass
from types import MappingProxyType

import torch


@dataclass(frozen=True, slots=True)
class ScalarOp:
    """The properties of one scalar operation; ``name`` is its name in ``Call`` and ``Compute``."""

    name: str
    expensive: bool = False
    """More than a few instructions: keeping the result is cheaper than recomputing it."""
    library: bool = False
    """C's math library and libdevice both have a function of this name."""
    unary: bool = False
    """ATen's operator of this name takes one tensor and returns floating point for any dtype."""
    gpu: bool = False
    """Only kernels on a GPU have the operation."""


# fmt: off
TRANSCENDENTAL = (
    "exp", "exp2", "expm1", "log", "log2", "log10", "log1p",
    "sin", "cos", "tan", "sinh", "cosh", "tanh",
    "asin", "acos", "atan", "asinh", "acosh", "atanh",
    "erf", "erfc", "lgamma",
)
# fmt: on

TABLE = MappingProxyType(
    {
        op.name: op
        for op in (
            *(ScalarOp(name, expensive=True, library=True, unary=True) for name in TRANSCENDENTAL),
            *(ScalarOp(name, expensive=True, library=True) for name in ("pow", "atan2", "hypot")),
            *(ScalarOp(name, expensive=True) for name in ("fmod", "remainder", "floordiv")),
            *(ScalarOp(name, unary=True) for name in ("sqrt", "rsqrt", "reciprocal")),
            *(
                ScalarOp(name, library=True)
                for name in ("copysign", "floor", "ceil", "trunc", "fmax", "fmin")
            ),
            ScalarOp("sigmoid", expensive=True, unary=True),
            ScalarOp("eager_uniform", expensive=True, gpu=True),
        )
    }
)

ROUNDINGS = MappingProxyType(
    {
        torch.bfloat16: "round_bf16",
        torch.float16: "round_f16",
        torch.float8_e4m3fn: "round_e4m3fn",
        torch.float8_e5m2: "round_e5m2",
    }
)
"""The operation that rounds a float32 value to what memory of a dtype holds, by dtype."""
HALF_ROUNDINGS = MappingProxyType({ROUNDINGS[dtype]: dtype for dtype in (torch.bfloat16, torch.float16)})
"""The dtype by the name of its operation, for dtypes of 16 bits."""
SLOW_SCANS = frozenset({"logaddexp"})
"""Scans whose steps take many cycles, each of which waits for the one before."""
EXPENSIVE = frozenset(op.name for op in TABLE.values() if op.expensive)
EXPENSIVE_OPERATIONS = 20
"""The cost of a transcendental function, in additions."""
LIBRARY = tuple(op.name for op in TABLE.values() if op.library)
FLOAT_UNARY = tuple(op.name for op in TABLE.values() if op.unary)

INFIX = MappingProxyType(
    {
        "sub": "-",
        "eq": "==",
        "ne": "!=",
        "lt": "<",
        "le": "<=",
        "gt": ">",
        "ge": ">=",
        "bitwise_and": "&",
        "bitwise_or": "|",
        "bitwise_xor": "^",
        "lshift": "<<",
        "rshift": ">>",
    }
)
"""Operations that C and Python write with the same infix symbol."""

COMPARISONS = frozenset({"lt", "le", "gt", "ge", "eq", "ne"})


def identity(op: str, dtype: torch.dtype) -> bool | float | int | None:
    """Return the neutral element of the reduction ``op`` on ``dtype``; None if ``op`` has none, as argmax."""
    if op in {"sum", "prod"}:
        return int(op == "prod")
    if op in {"any", "all"}:
        return op == "all"
    if op not in {"max", "min"}:
        return None
    if dtype.is_floating_point:
        return float("-inf" if op == "max" else "inf")
    if dtype is torch.bool:
        return op == "min"
    info = torch.iinfo(dtype)
    return int(info.min if op == "max" else info.max)


def scan_waits(op: str, state: torch.dtype) -> bool:
    """Whether a step of the scan ``op`` takes several cycles of the processor: a sum of integers takes one."""
    return op != "sum" or state.is_floating_point
