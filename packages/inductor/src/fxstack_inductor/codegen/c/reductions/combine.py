"""C text of reductions: identity, step, combination, and the simd clause that allows vectors."""

from __future__ import annotations

from dataclasses import dataclass

import torch

from fxstack_inductor.codegen.c.ops import REGISTER


@dataclass(frozen=True, slots=True)
class Accumulator:
    """The C text of one reduction. ``step``: statement with ``{acc}`` (accumulator) and ``{x}`` (element)."""

    register: str
    """The C type of the accumulator."""
    identity: str
    """The neutral element, as C text."""
    step: str
    clause: str
    """The reduction identifier of ``#pragma omp simd reduction``."""
    key: str
    """The integer type that vector loops compare instead (``max_key_float`` etc.); empty if none."""
    wide: str
    """The type of the sum of partial results: double for float sums, so that long sums stay accurate."""


KEYS = {torch.float32: "int32_t", torch.float64: "int64_t"}
"""Integers ordered like the floats, with NaN beyond all: their extremes need one instruction per vector."""


def key_step(op: str, register: str, key: str, x: str) -> str:
    """Return a statement that takes ``x`` into the running extreme ``key``, an integer that orders like the float."""
    return plain_step(op).format(acc=key, x=f"{op}_key_{register}({x})")


def plain_step(op: str) -> str:
    """Return the statement, with ``{acc}`` and ``{x}``, of an extreme of numbers that are not NaN."""
    sign = ">" if op == "max" else "<"
    return f"{{acc}} = {{acc}} {sign} {{x}} ? {{acc}} : {{x}};"


LIMITS = {
    torch.float32: ("-INFINITY", "INFINITY"),
    torch.float64: ("-INFINITY", "INFINITY"),
    torch.int64: ("INT64_MIN", "INT64_MAX"),
    torch.int32: ("INT32_MIN", "INT32_MAX"),
    torch.int16: ("INT16_MIN", "INT16_MAX"),
    torch.int8: ("INT8_MIN", "INT8_MAX"),
    torch.uint8: ("0", "UINT8_MAX"),
    torch.bool: ("false", "true"),
}


def accumulator(op: str, dtype: torch.dtype) -> Accumulator:
    """Return the C text of the reduction ``op`` of values of ``dtype``."""
    register = REGISTER[dtype]
    low, high = LIMITS[dtype]
    if dtype is torch.bool:
        # GCC makes no vectors of loops that keep booleans beside wider elements.
        register, op = "bool8", {"max": "any", "min": "all"}.get(op, op)
    match op:
        case "sum":
            wide = "double" if dtype is torch.float32 else register
            return Accumulator(register, "0", "{acc} = {acc} + {x};", "+", "", wide)
        case "prod":
            return Accumulator(register, "1", "{acc} = {acc} * {x};", "*", "", register)
        case "max" | "min":
            identity = low if op == "max" else high
            step = f"{{acc}} = {op}_{register}({{acc}}, {{x}});"
            if not dtype.is_floating_point:
                step = plain_step(op)
            return Accumulator(register, identity, step, op, KEYS.get(dtype, ""), register)
        case "any":
            return Accumulator(register, "false", "{acc} = {acc} | {x};", "|", "", register)
        case "all":
            return Accumulator(register, "true", "{acc} = {acc} & {x};", "&", "", register)
        case _:
            raise AssertionError(f"reduction {op}")


SCAN_STEPS = {
    "sum": "{acc} = {acc} + {x};",
    "prod": "{acc} = {acc} * {x};",
    "max": "{acc} = max_{t}({acc}, {x});",
    "min": "{acc} = min_{t}({acc}, {x});",
    "logaddexp": "{acc} = logaddexp_{t}({acc}, {x});",
}


def scan_start(op: str, state: torch.dtype) -> str:
    """Return, as C text, the running value of scan ``op`` before the first element."""
    low, high = LIMITS[state]
    return {"sum": "0", "prod": "1", "min": high, "argmin": high}.get(op, low)


def scan_step(op: str, state: torch.dtype, acc: str, x: str) -> str:
    """Return the C statement that takes ``x`` into the running value ``acc`` of a scan."""
    return SCAN_STEPS[op].format(acc=acc, x=x, t=REGISTER[state])


def scan_arg_step(op: str, best: str, x: str, last: str) -> str:
    """Return C that takes ``x`` into the extreme ``best`` so far, which starts as ``scan_start`` says; NaN beats all numbers.

    ``last`` names the new boolean "``x`` is the last extreme". No comparison with a NaN in ``best`` is true.
    """
    better = ">=" if op == "argmax" else "<="
    return f"const bool {last} = ({x} != {x}) | ({x} {better} {best}); {best} = {last} ? {x} : {best};"


def arg_step(op: str, best: str, where: str, x: str, position: str) -> str:
    """Return C that keeps the first position of the extreme; NaN beats all numbers.

    Variables: ``best`` is the extreme, ``where`` its position.
    """
    better = ">" if op == "argmax" else "<"
    return (
        f"if ({x} {better} {best} || ({x} != {x} && {best} == {best}) || {where} < 0)"
        f" {{ {best} = {x}; {where} = {position}; }}"
    )


def located_step(op: str, k: int, x: str, position: str, *, unordered: bool) -> str:
    """Return C, without branches, that takes ``x`` into column ``j`` of the extremes ``best<k>`` and the positions ``sum<k>``.

    They begin with ``scan_start`` and 0: where no element is beyond it, all are equal, and the first is the extreme.
    ``unordered``: NaN beats all numbers.
    """
    best, where, take = f"best{k}[j]", f"sum{k}[j]", f"take{k}"
    beyond = f"({x} {'>' if op == 'argmax' else '<'} {best})"
    if unordered:
        beyond += f" | (({x} != {x}) & ({best} == {best}))"
    return f"const bool {take} = {beyond}; {best} = {take} ? {x} : {best}; {where} = {take} ? {position} : {where};"
