"""Which arguments and results have gradients, and lists that hold only these."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

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
