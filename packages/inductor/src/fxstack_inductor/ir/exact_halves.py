"""Which float32 values of a kernel a half-precision dtype holds exactly: rounding such a value again changes nothing."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from math import frexp, isfinite
from struct import pack, unpack

import torch

from fxstack_inductor.ir.kernel import Compute, Constant, Kernel, Load, Reduce, Value, once_per_kernel
from fxstack_inductor.ir.scalar_ops import HALF_ROUNDINGS

KEEPING = frozenset(
    {
        *("abs", "neg", "relu", "sign", "copysign", "floor", "ceil", "trunc", "round"),
        *("maximum", "minimum", "fmax", "fmin"),
    }
)
"""Operations whose result has no more digits than their operands."""
BOTH, NONE = frozenset(HALF_ROUNDINGS.values()), frozenset[torch.dtype]()

Exact = frozenset[torch.dtype]
"""The half-precision dtypes that hold a value exactly."""


def exact(values: Sequence[Value], known: Sequence[Exact], buffers: Mapping[str, torch.dtype]) -> Exact:
    """Return the dtypes that hold the value after the ``known`` ones; ``buffers``: dtypes by name."""
    match values[len(known)]:
        case Load(buffer, _, torch.float32, _, other):
            return BOTH.intersection({buffers[buffer]}, BOTH if other is None else known[other])
        case Constant(text, torch.float32):
            return frozenset(dtype for dtype in BOTH if _holds(dtype, float(text)))
        case Compute("where", (_, chosen, other), torch.float32):
            return known[chosen] & known[other]
        case Compute(op, args, torch.float32) if op in KEEPING:
            return BOTH.intersection(*(known[k] for k in args))
        case Compute("mul", (left, right), torch.float32):  # bfloat16 has the exponents of floats
            scaled = [a for a, by in ((left, right), (right, left)) if _is_power_of_two(values[by])]
            return BOTH.intersection({torch.bfloat16}, *(known[a] for a in scaled)) if scaled else NONE
        case Compute(op, (arg,)) if (
            op in HALF_ROUNDINGS
        ):  # bfloat16 makes 65536 of 65504, the greatest of float16
            dtype = HALF_ROUNDINGS[op]
            return (known[arg] if dtype is torch.float16 else NONE) | {dtype}
        case Reduce("max" | "min", (arg,), torch.float32):
            return known[arg]
        case _:
            return NONE


@once_per_kernel
def exact_values(kernel: Kernel) -> list[Exact]:
    """Return the dtypes that hold each value of ``kernel``, by position."""
    buffers = {ref.name: ref.dtype for ref in kernel.buffers}
    known: list[Exact] = []
    for _ in kernel.values:
        known.append(exact(kernel.values, known, buffers))
    return known


def _holds(dtype: torch.dtype, number: float) -> bool:
    """Whether ``dtype`` has ``number``."""
    if not isfinite(number):
        return True
    if dtype is torch.bfloat16:
        word = pack("f", number)
        return unpack("f", word)[0] == number and not unpack("I", word)[0] & 0xFFFF
    fraction, exponent = frexp(number)
    return (fraction * 2**11).is_integer() and (number * 2**24).is_integer() and exponent <= 16


def _is_power_of_two(value: Value) -> bool:
    """Whether a number is 1, 2, 4 and so on: products may be infinite, but lose no digit."""
    if not isinstance(value, Constant) or not isfinite(float(value.text)):
        return False
    fraction, exponent = frexp(float(value.text))
    return abs(fraction) == 0.5 and exponent > 0
