"""C text of scalar operations, by name and register type."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from math import isinf, isnan
from types import MappingProxyType

import torch

from fxstack_inductor.errors import NotLowered
from fxstack_inductor.ir.scalar_ops import INFIX, LIBRARY

STORAGE = MappingProxyType(
    {
        torch.float64: "double",
        torch.float32: "float",
        torch.bfloat16: "bf16",
        torch.float16: "f16",
        torch.int64: "int64_t",
        torch.int32: "int32_t",
        torch.int16: "int16_t",
        torch.int8: "int8_t",
        torch.uint8: "uint8_t",
        torch.bool: "bool8",
    }
)
"""The C type of an element in memory."""

REGISTER = MappingProxyType({**STORAGE, torch.bool: "bool"})
"""The C type of an element in a register (half precision never occurs there)."""


def suffix(dtype: torch.dtype) -> str:
    """Return the suffix of math functions for a type: ``f`` for float (``sinf``), else nothing."""
    return "f" if dtype is torch.float32 else ""


def literal(text: str, dtype: torch.dtype) -> str:
    """Return a C literal with exactly the value of the Python literal ``text``."""
    if dtype is torch.bool:
        return "true" if text in {"True", "1"} else "false"
    if not dtype.is_floating_point:
        value = int({"True": "1", "False": "0"}.get(text, text))
        if value == -(2**63):
            return "INT64_MIN"
        return f"INT64_C({value})" if dtype is torch.int64 else f"(({REGISTER[dtype]}){value})"
    value_ = float({"True": "1", "False": "0"}.get(text, text))
    if isnan(value_):
        return f"(({REGISTER[dtype]})NAN)"
    if isinf(value_):
        return f"(({REGISTER[dtype]}){'-' if value_ < 0 else ''}INFINITY)"
    return f"{value_!r}{suffix(dtype)}" if dtype is torch.float64 else f"((float){value_!r})"


def cast(operand: str, source: torch.dtype, target: torch.dtype) -> str:
    """Return C text that converts ``operand`` from ``source`` to ``target`` with eager's result."""
    if source == target:
        return operand
    if target is torch.bool:
        return f"({operand} != 0)"
    if source is torch.bool:
        # GCC cannot vectorise the conversion of a loaded boolean; the whole loop would become scalar.
        return f"({operand} ? ({REGISTER[target]})1 : ({REGISTER[target]})0)"
    if target is torch.uint8 and source.is_floating_point:
        return f"((uint8_t)(int64_t)({operand} + fxstack_no_float))"
    if source.is_floating_point and not target.is_floating_point:
        through = "int64_t" if target is torch.int64 else "int32_t"
        return f"(({REGISTER[target]})(({through})({operand} + fxstack_no_float) | fxstack_zero))"
    return f"(({REGISTER[target]}){operand})"


def infix(symbol: str) -> Callable[..., str]:
    """Return a maker of C text for an operator between two operands."""
    return lambda args, _, __: f"({args[0]} {symbol} {args[1]})"


def bool_infix(symbol: str, for_bool: str) -> Callable[..., str]:
    """Return a maker of C text for an arithmetic operator that is spelled ``for_bool`` between booleans."""
    return lambda args, dtype, _: f"({args[0]} {for_bool if dtype is torch.bool else symbol} {args[1]})"


def libm(name: str) -> Callable[..., str]:
    """Return a maker of calls of the math function ``name``."""
    return lambda args, dtype, _: f"{name}{suffix(dtype)}({', '.join(args)})"


def generic(name: str) -> Callable[..., str]:
    """Return a maker of calls of a prelude function that exists per type, for example ``hypot_float(a, b)``."""
    return lambda args, dtype, _: f"{name}_{REGISTER[dtype]}({', '.join(args)})"


def template(text: str) -> Callable[..., str]:
    """Return a maker of C text from a format: ``{0}`` are operands, ``{s}`` the math suffix, ``{t}`` the type."""
    return lambda args, dtype, _: text.format(*args, s=suffix(dtype), t=REGISTER[dtype])


def _abs(args: Sequence[str], dtype: torch.dtype, _: object) -> str:
    """Return the C text of an absolute value."""
    if dtype.is_floating_point:
        return f"fabs{suffix(dtype)}({args[0]})"
    return f"({args[0]} < 0 ? -{args[0]} : {args[0]})"


def _not(args: Sequence[str], dtype: torch.dtype, _: object) -> str:
    return f"(!{args[0]})" if dtype is torch.bool else f"(~{args[0]})"


def _fmod(args: Sequence[str], dtype: torch.dtype, _: object) -> str:
    """Return the C text of a remainder with the sign of the dividend."""
    if dtype.is_floating_point:
        return f"fmod{suffix(dtype)}({args[0]}, {args[1]})"
    return f"({args[0]} % {args[1]})"


def _truncdiv(args: Sequence[str], dtype: torch.dtype, _: object) -> str:
    """Return the C text of a quotient rounded towards zero."""
    quotient = f"({args[0]} / {args[1]})"
    return f"trunc{suffix(dtype)}{quotient}" if dtype.is_floating_point else quotient


OPS: MappingProxyType[str, Callable[..., str]] = MappingProxyType(
    {
        **{name: libm(name) for name in (*LIBRARY, "sqrt")},
        **{name: infix(symbol) for name, symbol in INFIX.items()},
        "div": infix("/"),
        "add": bool_infix("+", "|"),
        "mul": bool_infix("*", "&"),
        "neg": template("(-{0})"),
        "abs": _abs,
        "sign": template("(({t})(({0} > 0) - ({0} < 0)))"),
        "rsqrt": template("inverse_root{s}({0})"),
        "reciprocal": template("(1 / {0})"),
        "sigmoid": template("(1 / (1 + exp{s}(-{0})))"),
        "relu": template("({0} < 0 ? 0 : {0})"),
        "round": template("rint{s}({0})"),
        "bitwise_not": _not,
        "maximum": generic("max"),
        "minimum": generic("min"),
        # Of equal zeros the first, and beside a NaN the number: C leaves the choice of zero open.
        "fmax": template("(({0} >= {1}) | ({1} != {1}) ? {0} : {1})"),
        "fmin": template("(({0} <= {1}) | ({1} != {1}) ? {0} : {1})"),
        "hypot": generic("hypot"),
        "where": template("({0} ? {1} : {2})"),
        "fmod": _fmod,
        "truncdiv": _truncdiv,
        "remainder": generic("remainder"),
        "floordiv": generic("floordiv"),
        "round_bf16": template("bf16_round({0})"),
        "round_f16": template("f16_load(f16_store({0}))"),
    }
)
"""For each operation, a maker of its C text from the operands' texts, the result's dtype and the operands' dtypes."""


def emit(op: str, args: Sequence[str], dtype: torch.dtype, operands: Sequence[torch.dtype]) -> str:
    """Return the C expression of one operation."""
    if op == "cast":
        return cast(args[0], operands[0], dtype)
    make = OPS.get(op)
    if make is None:
        raise NotLowered(f"no C for the operation {op}")
    # Comparisons return bool but compute in their operands' type.
    return make(args, dtype, operands)


HALVES = {torch.bfloat16: "bf16", torch.float16: "f16"}


def load(text: str, dtype: torch.dtype) -> str:
    """Return C text that gives the element ``text`` of memory as a register value: halves become floats."""
    return f"{HALVES[dtype]}_load({text})" if dtype in HALVES else text


def store(text: str, dtype: torch.dtype) -> str:
    """Return C text that gives the register value ``text`` as an element of memory: floats become halves."""
    return f"{HALVES[dtype]}_store({text})" if dtype in HALVES else text
