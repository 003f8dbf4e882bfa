"""ATen calls that a native host program makes through torch's C shim: one rule per overload."""

from __future__ import annotations

import math
from dataclasses import dataclass
from types import MappingProxyType
from typing import TYPE_CHECKING

from fxstack_inductor.lower.registry import find_overload

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from fxstack_inductor.ir.nodes import ExternCall, Node

    Rule = Callable[[ExternCall], "ShimCall | None"]


@dataclass(frozen=True, slots=True)
class ShimCall:
    """``function(out, *tensors, *numbers)``; ``keywords`` are the numbers as the operator's own arguments."""

    function: str
    tensors: tuple[Node, ...]
    numbers: tuple[float, ...] = ()
    keywords: tuple[tuple[str, float], ...] = ()


def product(function: str) -> Rule:
    """``function(out, a, b)``."""

    def rule(step: ExternCall) -> ShimCall | None:
        plain = len(step.args) == 2 and not step.kwargs
        return ShimCall(function, step.args) if plain else None

    return rule


def added_product(function: str) -> Rule:
    """``function(out, input, a, b, beta, alpha)``."""

    def rule(step: ExternCall) -> ShimCall | None:
        scales = {name: step.kwargs.get(name, 1) for name in ("beta", "alpha")}
        fixed = all(type(s) in (int, float) and math.isfinite(s) for s in scales.values())
        if len(step.args) != 3 or not fixed:
            return None
        return ShimCall(
            function, step.args, tuple(map(float, scales.values())), tuple(scales.items())
        )

    return rule


OUT_CALLS: Mapping[object, Rule] = MappingProxyType(
    {
        find_overload("mm.out"): product("aoti_torch_cpu_mm_out"),
        find_overload("bmm.out"): product("aoti_torch_cpu_bmm_out"),
        find_overload("addmm.out"): added_product("aoti_torch_cpu_addmm_out"),
        find_overload("baddbmm.out"): added_product("aoti_torch_cpu_baddbmm_out"),
    }
)
"""By ``out=`` overload; None where the shim cannot say what is asked."""
