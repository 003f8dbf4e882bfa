"""Which arguments and results have gradients, and lists that hold only these."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import torch
from torch import Tensor


def is_float(value: object) -> bool:
    """Return whether a value is a tensor whose dtype has gradients."""
    return isinstance(value, Tensor) and (value.is_floating_point() or value.is_complex())


def chosen(values: Iterable[Any], flags: Iterable[bool]) -> list[Any]:
    """Return the values whose flag is true."""
    return [value for value, flag in zip(values, flags, strict=True) if flag]


def spread(values: Iterable[Any], flags: Iterable[bool]) -> list[Any]:
    """Return a value for each true flag, and ``None`` for each other flag."""
    remaining = iter(values)
    return [next(remaining) if flag else None for flag in flags]


def as_gradient(gradient: Tensor, result: Tensor) -> Tensor:
    """Return a gradient as one of ``result``. The outer graph may know its size as a number from data only."""
    if all(
        type(size) is int or size is other for size, other in zip(gradient.shape, result.shape, strict=True)
    ):
        return gradient
    dense = gradient.clone(memory_format=torch.contiguous_format)
    strides = torch.empty_like(result, memory_format=torch.contiguous_format).stride()
    return dense.as_strided(result.shape, strides)
