"""Decompose ``torch._foreach_*`` into operators on single tensors, so that operators on one tensor fuse.

ATen's kernel applies one operator to all tensors; an optimizer's step calls a dozen such kernels.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from types import MappingProxyType
from typing import Any

import torch

from fxstack_inductor.lower.registry import find_overload
from fxstack_interchange.operators.list_operators import ForEach


def _norm(x: torch.Tensor, ord: object = 2, dtype: torch.dtype | None = None) -> torch.Tensor:
    """Call ``vector_norm`` with the argument order of ``_foreach_norm``."""
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
"""The function for one tensor, by the name behind ``_foreach_``."""
_OF_NUMBERS = MappingProxyType({"maximum": torch.clamp_min, "minimum": torch.clamp_max})
"""Functions that replace a function of ``_FUNCTIONS`` if the second operand is a number."""
_OVERLOADS = ("default", "List", "Scalar", "ScalarList", "Tensor", "ScalarAndTensor")
_SCALED = frozenset({"addcmul", "addcdiv"})
"""Operators that take the number behind the tensors as ``value=``."""


def _each(name: str, overload: str) -> ForEach:
    """Return a function of lists that applies the operator ``name`` to the tensors at each position."""
    numbers = overload in {"Scalar", "ScalarList"}
    function = (_OF_NUMBERS.get(name) if numbers else None) or _FUNCTIONS[name]
    return ForEach(function, scaled=name in _SCALED)


def foreach_rules() -> Mapping[Any, ForEach]:
    """Map each ``_foreach_`` overload that this torch has to its decomposition."""
    rules = {}
    for name in _FUNCTIONS:
        for overload in _OVERLOADS:
            operator = find_overload(f"_foreach_{name}.{overload}")
            if operator is not None and not (name in _SCALED and overload == "Tensor"):
                rules[operator] = _each(name, overload)
    return rules
