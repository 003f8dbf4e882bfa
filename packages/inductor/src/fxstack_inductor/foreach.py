"""``torch._foreach_*`` as the operators that it does for each tensor of its lists, so that what is done with one tensor is fused.

A kernel of ATen's goes through all tensors for one operator; an optimizer's step is a dozen of these.
"""

from __future__ import annotations

from types import MappingProxyType
from typing import TYPE_CHECKING, Any

import torch

from fxstack_inductor.lower.registry import find_overload

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping


def _norm(x: torch.Tensor, ord: object = 2, dtype: torch.dtype | None = None) -> torch.Tensor:
    """``vector_norm`` in the order of ``_foreach_norm``'s arguments."""
    return torch.linalg.vector_norm(x, ord, dtype=dtype)


_SAME = """abs acos asin atan ceil cos cosh erf erfc exp expm1 floor frac lgamma log log10 log1p log2 neg reciprocal
    round rsqrt sigmoid sign sin sinh sqrt tan tanh trunc add sub mul div pow lerp maximum minimum clamp_max clamp_min
    addcmul addcdiv"""
_FUNCTIONS: Mapping[str, Callable[..., Any]] = MappingProxyType(
    {
        **{name: getattr(torch, name) for name in _SAME.split()},
        "zero": torch.zeros_like,
        "copy": torch.ops.aten.copy.default,
        "norm": _norm,
    }
)
"""What is done for one tensor, by what follows ``_foreach_``."""
_OF_NUMBERS = MappingProxyType({"maximum": torch.clamp_min, "minimum": torch.clamp_max})
"""Where the other operand is a number."""
_OVERLOADS = ("default", "List", "Scalar", "ScalarList", "Tensor", "ScalarAndTensor")
_SCALED = frozenset({"addcmul", "addcdiv"})
"""Those that take the number behind the tensors as ``value=``."""


def _each(name: str, overload: str) -> Callable[..., Any]:
    numbers = overload in {"Scalar", "ScalarList"}
    function = (_OF_NUMBERS.get(name) if numbers else None) or _FUNCTIONS[name]

    def run(*args: object, **kwargs: object) -> list[torch.Tensor]:
        rest = dict(kwargs)
        if name in _SCALED:
            *args, rest["value"] = (*args, 1)[:4]  # type: ignore[assignment]
        listed = next(arg for arg in args if isinstance(arg, (list, tuple)))
        return [
            function(*(_one(arg, k) for arg in args), **{n: _one(v, k) for n, v in rest.items()})
            for k in range(len(listed))
        ]

    return run


def _one(value: object, position: int) -> Any:
    """What a list holds at ``position``; what is none is for all."""
    return value[position] if isinstance(value, (list, tuple)) else value


def foreach_rules() -> Mapping[Any, Callable[..., Any]]:
    """Decompositions by overload, of those that this torch has."""
    found = {}
    for name in _FUNCTIONS:
        for overload in _OVERLOADS:
            operator = find_overload(f"_foreach_{name}.{overload}")
            if operator is not None and not (name in _SCALED and overload == "Tensor"):
                found[operator] = _each(name, overload)
    return found
