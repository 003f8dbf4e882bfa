"""Triton text of scalar operations, by name: the counterpart of ``codegen.c.ops``.

Transcendental functions come from libdevice, which is as accurate as CUDA's math library, so results equal
eager torch's on a GPU. Division and square root round to nearest, as in eager.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from math import isinf, isnan
from types import MappingProxyType

import torch

from fxstack_inductor.codegen.triton import centred, draws, float8
from fxstack_inductor.errors import NotLowered
from fxstack_inductor.ir.scalar_ops import INFIX, LIBRARY
from fxstack_inductor.tiling.kernels import FLOAT8_NAMES

TYPES = MappingProxyType(
    {
        torch.float64: "tl.float64",
        torch.float32: "tl.float32",
        torch.bfloat16: "tl.bfloat16",
        torch.float16: "tl.float16",
        torch.int64: "tl.int64",
        torch.int32: "tl.int32",
        torch.int16: "tl.int16",
        torch.int8: "tl.int8",
        torch.uint8: "tl.uint8",
        torch.bool: "tl.int1",
    }
)


def literal(text: str, dtype: torch.dtype) -> str:
    """Return a zero-dimensional tensor with exactly the value of the Python literal ``text``."""
    value = float({"True": "1", "False": "0"}.get(text, text))
    if not dtype.is_floating_point:
        shown = {"True": "1", "False": "0"}.get(text, text)
    elif isnan(value) or isinf(value):
        shown = f'float("{value!r}")'
    else:
        shown = repr(value)
    return f"tl.full([], {shown}, {TYPES[dtype]})"


def cast(operand: str, source: torch.dtype, target: torch.dtype) -> str:
    """Return Triton text that converts ``operand`` from ``source`` to ``target`` with eager's result."""
    if source == target:
        return operand
    if target is torch.bool:
        return f"({operand} != 0)"
    if target is torch.uint8 and source.is_floating_point:
        return f"{operand}.to(tl.int64).to(tl.uint8)"
    return f"{operand}.to({TYPES[target]})"


def limits(dtype: torch.dtype) -> tuple[str, str]:
    """Return the least and the largest value of a dtype, as text."""
    if dtype is torch.bool:
        return "False", "True"
    info = torch.iinfo(dtype)
    return str(info.min), str(info.max)


def _template(text: str) -> Callable[..., str]:
    """Return a maker of text from a format: ``{0}`` are operands, ``{t}`` is the type."""
    return lambda args, dtype: text.format(*args, t=TYPES[dtype])


def _libdevice(name: str) -> Callable[..., str]:
    """Return a maker of calls of CUDA's math function ``name``."""
    return lambda args, _dtype: f"libdevice.{name}({', '.join(args)})"


def _infix(symbol: str, for_bool: str = "") -> Callable[..., str]:
    """Return a maker of text for an operator between two operands; ``for_bool`` is its spelling for booleans."""

    def emit_infix(args: Sequence[str], dtype: torch.dtype) -> str:
        chosen = for_bool if dtype is torch.bool and for_bool else symbol
        return f"({args[0]} {chosen} {args[1]})"

    return emit_infix


def _by_kind(floating: str, integral: str) -> Callable[..., str]:
    """Return a maker of text from the format ``floating`` or ``integral``, by the result's dtype."""

    def emit_by_kind(args: Sequence[str], dtype: torch.dtype) -> str:
        return (floating if dtype.is_floating_point else integral).format(*args, t=TYPES[dtype])

    return emit_by_kind


def _division(args: Sequence[str], dtype: torch.dtype) -> str:
    """Return a quotient that is rounded to nearest, as in eager."""
    if dtype is torch.float32:
        return f"tl.div_rn({args[0]}, {args[1]})"
    return f"({args[0]} / {args[1]})"


def _square_root(args: Sequence[str], dtype: torch.dtype) -> str:
    # libdevice's square root is approximate in code that Triton compiles.
    return f"tl.sqrt_rn({args[0]})" if dtype is torch.float32 else f"libdevice.sqrt({args[0]})"


OPS: MappingProxyType[str, Callable[..., str]] = MappingProxyType(
    {
        **{name: _libdevice(name) for name in (*LIBRARY, "rsqrt", "fmod")},
        **{name: _infix(symbol) for name, symbol in INFIX.items()},
        "add": _infix("+", "|"),
        "mul": _infix("*", "&"),
        "div": _division,
        "sqrt": _square_root,
        "neg": _template("(-{0})"),
        "abs": _template("tl.abs({0})"),
        "sign": _template("(({0} > 0).to({t}) - ({0} < 0).to({t}))"),
        "reciprocal": lambda args, dtype: _division((literal("1", dtype), args[0]), dtype),
        "sigmoid": lambda args, dtype: _division(
            (literal("1", dtype), f"(1 + libdevice.exp(-{args[0]}))"), dtype
        ),
        "relu": _template("tl.where({0} <= 0, tl.zeros_like({0}), {0})"),
        "round": _template("libdevice.nearbyint({0})"),
        "bitwise_not": lambda args, dtype: f"({args[0]} == 0)" if dtype is torch.bool else f"(~{args[0]})",
        "maximum": _template("_maximum({0}, {1})"),
        "minimum": _template("_minimum({0}, {1})"),
        "where": _template("tl.where({0}, {1}, {2})"),
        "fmod": _by_kind("libdevice.fmod({0}, {1})", "({0} % {1})"),
        "truncdiv": _by_kind("libdevice.trunc(_quotient({0}, {1}))", "({0} // {1})"),
        "remainder": _by_kind("_remainder_float({0}, {1})", "_remainder({0}, {1})"),
        "floordiv": _by_kind("_floordiv_float({0}, {1})", "_floordiv({0}, {1})"),
        **{f"round_{n}": _template(float8.rounded(d)) for d, n in FLOAT8_NAMES.items()},
        "eager_uniform": lambda args, _dtype: f"_eager_uniform({', '.join(args)})",
        "round_bf16": _template("{0}.to(tl.bfloat16).to(tl.float32)"),
        "round_f16": _template("{0}.to(tl.float16).to(tl.float32)"),
    }
)
"""For each operation, a maker of its Triton text from the operands' texts and the result's dtype."""


def emit(op: str, args: Sequence[str], dtype: torch.dtype, operands: Sequence[torch.dtype]) -> str:
    """Return the Triton expression of one operation.

    Raises:
        NotLowered: Triton lacks the operation.
    """
    if op == "cast":
        return cast(args[0], operands[0], dtype)
    make = OPS.get(op)
    if make is None:
        raise NotLowered(f"no Triton for the operation {op}")
    return make(args, dtype)


PRELUDE = '''"""Generated by fxstack: the kernels of one graph."""

import triton
import triton.language as tl
from triton.language.extra import libdevice


@triton.jit
def _maximum(a, b):
    return tl.where((a > b) | (a != a), a, b)


@triton.jit
def _minimum(a, b):
    return tl.where((a < b) | (a != a), a, b)


@triton.jit
def _product(a, b):
    return a * b


@triton.jit
def _sum(a, b):
    return a + b


@triton.jit
def _logaddexp(a, b):
    low, high = _minimum(a, b), _maximum(a, b)
    same = (low == high) & ((low == float("inf")) | (low == -float("inf")))
    return tl.where(same, high, libdevice.log1p(libdevice.exp(low - high)) + high)


@triton.jit
def _last_argmax(value, at, other, where):
    keep = (other == other) & ((value != value) | (other < value))
    return tl.where(keep, value, other), tl.where(keep, at, where)


@triton.jit
def _last_argmin(value, at, other, where):
    keep = (other == other) & ((value != value) | (other > value))
    return tl.where(keep, value, other), tl.where(keep, at, where)


@triton.jit
def _remainder(a, b):
    rest = a % b
    return tl.where((rest != 0) & ((rest < 0) != (b < 0)), rest + b, rest)


@triton.jit
def _floordiv(a, b):
    quotient = a // b
    return tl.where((a % b != 0) & ((a < 0) != (b < 0)), quotient - 1, quotient)


@triton.jit
def _quotient(a, b):
    if a.dtype == tl.float32:
        return tl.div_rn(a, b)
    else:
        return a / b


@triton.jit
def _remainder_float(a, b):
    rest = libdevice.fmod(a, b)
    return tl.where((rest != 0) & ((rest < 0) != (b < 0)), rest + b, rest)


@triton.jit
def _floordiv_float(a, b):
    rest = libdevice.fmod(a, b)
    quotient = _quotient(a - rest, b)
    quotient = tl.where((rest != 0) & ((b < 0) != (rest < 0)), quotient - 1, quotient)
    floored = libdevice.floor(quotient)
    floored = tl.where(quotient - floored > 0.5, floored + 1, floored)
    exact = _quotient(a, b)
    return tl.where(b == 0, exact, tl.where(quotient == 0, libdevice.copysign(0.0 * a, exact), floored))


@triton.jit
def _argmax(value, at, other, where):
    better = (value > other) | ((value != value) & (other == other))
    tie = ((value == other) | ((value != value) & (other != other))) & (at < where)
    keep = better | tie
    return tl.where(keep, value, other), tl.where(keep, at, where)


@triton.jit
def _argmin(value, at, other, where):
    better = (value < other) | ((value != value) & (other == other))
    tie = ((value == other) | ((value != value) & (other != other))) & (at < where)
    keep = better | tie
    return tl.where(keep, value, other), tl.where(keep, at, where)
'''
PRELUDE += centred.PRELUDE + float8.PRELUDE + draws.PRELUDE
