"""ATen calls that a native host program makes through torch's C shim: one rule per overload."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from types import MappingProxyType
from typing import Any

import torch

from fxstack_inductor.codegen.dtype_codes import DTYPE_CODES
from fxstack_inductor.ir.expr import Expr
from fxstack_inductor.ir.nodes import ExternCall, Node
from fxstack_inductor.lower.registry import find_overload
from fxstack_inductor.schedule.outvariants import out_variant
from fxstack_inductor.schedule.plan import Step

Rule = Callable[[ExternCall], "ShimCall | None"]


@dataclass(frozen=True, slots=True)
class ShimCall:
    """``function(out, *tensors, *numbers)``; the function's name lacks the device.

    ``keywords`` are the numbers as the operator's own arguments.
    """

    function: str
    numbers: tuple[float, ...] = ()
    keywords: tuple[tuple[str, float], ...] = ()


def product(function: str) -> Rule:
    """Return the rule of ``function(out, a, b)``."""

    def rule(step: ExternCall) -> ShimCall | None:
        plain = len(step.args) == 2 and not step.kwargs
        return ShimCall(function) if plain else None

    return rule


def added_product(function: str) -> Rule:
    """Return the rule of ``function(out, input, a, b, beta, alpha)``."""

    def rule(step: ExternCall) -> ShimCall | None:
        scales = {name: step.kwargs.get(name, 1) for name in ("beta", "alpha")}
        if len(step.args) != 3 or not all(map(_is_double, scales.values())):
            return None
        return ShimCall(function, tuple(map(float, scales.values())), tuple(scales.items()))

    return rule


def _is_double(value: object) -> bool:
    """Whether ``value`` is a finite number that a double holds exactly."""
    if type(value) is int:
        return abs(value) <= 2**53
    return type(value) is float and math.isfinite(value)


OUT_CALLS: Mapping[object, Rule] = MappingProxyType(
    {
        find_overload("mm.out"): product("mm_out"),
        find_overload("bmm.out"): product("bmm_out"),
        find_overload("addmm.out"): added_product("addmm_out"),
        find_overload("baddbmm.out"): added_product("baddbmm_out"),
    }
)
"""Rules by ``out=`` overload; a rule returns None if the shim cannot express the call."""


@dataclass(frozen=True, slots=True)
class Argument:
    """An argument of a shim function: ``text`` in C, ``again`` in Python; both have ``{}`` per tensor."""

    text: str
    again: str
    tensors: tuple[Node, ...] = ()


ATTENTION = ("flash_attention_for_cpu", "flash_attention", "cudnn_attention", "efficient_attention")
NEW_CALLS: Mapping[object, str] = MappingProxyType(
    {
        find_overload(f"{name}.default"): name
        for name in (
            "convolution",
            "convolution_backward",
            "native_dropout",
            "topk",
            "_scaled_mm",
            *(
                f"_scaled_dot_product_{kind}{backward}"
                for kind in ATTENTION
                for backward in ("", "_backward")
            ),
        )
    }
)
"""Functions that return new tensors, without their device; the rules below derive their signatures."""
UNDEFINED = "undefined"
"""The value of ``Argument.text`` for the handle of an undefined tensor."""


def shim_name(name: str, device: str) -> str:
    """Return the shim's function ``name`` for tensors on device type ``device``."""
    return f"aoti_torch_{device}_{name}"


def shim_arguments(step: ExternCall) -> list[Argument] | None:
    """Return the arguments of ``step`` in schema order; None if an argument is known only at run time."""
    found = []
    given = {a.name: v for a, v in zip(step.target._schema.arguments, step.args, strict=False)}
    given |= step.kwargs
    for argument in step.target._schema.arguments:
        value = given.get(argument.name, argument.default_value)
        made = ARGUMENTS[str(argument.type)](_fixed(value))
        if made is None:
            return None
        found.append(made)
    return found


def _fixed(value: object) -> Any:
    """Return ``value`` with constant expressions replaced by integers."""
    if isinstance(value, Expr):
        number = value.as_int()
        return value if number is None else number
    return [_fixed(item) for item in value] if isinstance(value, (tuple, list)) else value


def _tensor(value: object) -> Argument | None:
    if value is None:  # attention backward takes tensors that its forward did not make
        return Argument(UNDEFINED, "None")
    return Argument("{}", "{}", (value,)) if isinstance(value, Node) else None


def _integer(value: object) -> Argument | None:
    return Argument(str(int(value)), repr(value)) if isinstance(value, (bool, int)) else None


def _number(value: Any) -> Argument | None:
    plain = isinstance(value, (int, float)) and math.isfinite(value)
    return Argument(float(value).hex(), repr(value)) if plain else None


def _integer_or_dtype(value: object) -> Argument | None:
    """Return an integer or dtype argument: schemas declare dtypes as integers, the shim takes the numbers."""
    if isinstance(value, torch.dtype):
        return Argument(f"(int32_t[]){{{{{DTYPE_CODES[value]}}}}}", repr(value))
    made = _integer(value)
    return made and Argument(f"(int64_t[]){{{{{made.text}}}}}", made.again)


def _list(kind: str) -> Callable[[Any], Argument | None]:
    def make(value: Any) -> Argument | None:
        if not all(isinstance(item, (bool, int)) for item in value):
            return None
        items = ", ".join(str(int(item)) for item in value) or "0"
        return Argument(f"({kind}[]){{{{{items}}}}}, {len(value)}", repr(value))

    return make


def _optional(make: Callable[[Any], Argument | None], kind: str) -> Callable[[Any], Argument | None]:
    """Return a maker of pointers to values; None becomes a null pointer."""
    listed = kind.startswith("const int64_t")

    def optional(value: object) -> Argument | None:
        if value is None:
            return Argument("0, 0" if listed else "0", "None")
        made = make(value)
        if made is None:
            return None
        body, comma, count = made.text.rpartition(", ") if listed else (made.text, "", "")
        return Argument(f"({kind}[]){{{{{body}}}}}{comma}{count}", made.again, made.tensors)

    return optional


ARGUMENTS: Mapping[str, Callable[[Any], Argument | None]] = MappingProxyType(
    {
        "Tensor": _tensor,
        "Optional[Tensor]": _optional(_tensor, "void*"),
        "bool": _integer,
        "int": _integer,
        "float": _number,
        "Optional[float]": _optional(_number, "double"),
        "Optional[bool]": _optional(_integer, "int32_t"),
        "Optional[int]": lambda value: Argument("0", "None") if value is None else _integer_or_dtype(value),
        "List[int]": _list("int64_t"),
        "List[bool]": _list("int32_t"),
        "Optional[List[int]]": _optional(_list("int64_t"), "const int64_t*"),
    }
)
"""The shim's spelling of an argument, by its type in the schema."""


def through_shim(step: Step) -> bool:
    """Whether a native program may make the call of ``step`` without Python."""
    if not isinstance(step, ExternCall):
        return False
    return out_variant(step) in OUT_CALLS or step.target in NEW_CALLS


def tensor_results(step: ExternCall) -> set[int]:
    """Return the positions of tensors among an operator's results; the others are unused numbers."""
    returns = step.target._schema.returns
    return {k for k, result in enumerate(returns) if str(result.type) == "Tensor"}
