"""Select the values of an operator that have gradients, for the rules of operators with functions."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import Any

import torch
from torch import Tensor

Values = Sequence[Any]


def is_float(value: object) -> bool:
    """Return whether a value is a tensor whose dtype has gradients."""
    return isinstance(value, Tensor) and (value.is_floating_point() or value.is_complex())


def needs_gradient(values: Iterable[object]) -> bool:
    """Return whether an operator of ``values`` gets a gradient."""
    return torch.is_grad_enabled() and any(isinstance(x, Tensor) and x.requires_grad for x in values)


def float_flags(values: Values, needs: Iterable[bool]) -> list[bool]:
    """Return for each value whether it is a tensor with a gradient that is needed."""
    return [need and is_float(value) for value, need in zip(values, needs, strict=True)]


def chosen(values: Iterable[Any], flags: Iterable[bool]) -> list[Any]:
    """Return the values whose flag is true."""
    return [value for value, flag in zip(values, flags, strict=True) if flag]


def spread(values: Iterable[Any], flags: Iterable[bool]) -> Iterator[Any]:
    """Yield a value for each true flag, and ``None`` for each other flag."""
    remaining = iter(values)
    for flag in flags:
        yield next(remaining) if flag else None
