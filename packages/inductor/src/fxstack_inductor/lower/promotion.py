"""Eager's type promotion over IR nodes and Python scalars."""

from __future__ import annotations

from collections.abc import Sequence

import torch

from fxstack_inductor.errors import NotLowered
from fxstack_inductor.ir.expr import Expr
from fxstack_inductor.ir.nodes import Node
from fxstack_inductor.lower.context import HostScalar, TensorOrScalar


def _category(dtype: torch.dtype) -> int:
    """Return the rank of a dtype's kind in promotion: boolean below integer below floating point."""
    if dtype is torch.bool:
        return 0
    return 2 if dtype.is_floating_point else 1


def _scalar_dtype(value: bool | float | Expr | HostScalar) -> torch.dtype:
    """Return the dtype that eager gives a Python number."""
    if isinstance(value, bool):
        return torch.bool
    if isinstance(value, (int, Expr)):
        return torch.int64
    if isinstance(value, (float, HostScalar)):
        return torch.get_default_dtype()
    raise NotLowered(f"operand of type {type(value).__name__}")


def _join(dtypes: Sequence[torch.dtype]) -> torch.dtype | None:
    """Return the common dtype of ``dtypes``; None if there are no dtypes."""
    result: torch.dtype | None = None
    for dtype in dtypes:
        result = dtype if result is None else torch.promote_types(result, dtype)
    return result


def promote(*values: TensorOrScalar) -> torch.dtype:
    """Return eager's computation dtype: tensors with dimensions decide first, then 0-d tensors, then numbers."""
    ranked = [value.dtype for value in values if isinstance(value, Node) and value.shape]
    zero_d = [value.dtype for value in values if isinstance(value, Node) and not value.shape]
    scalars = [_scalar_dtype(value) for value in values if not isinstance(value, Node)]
    result: torch.dtype | None = None
    for dtype in (_join(ranked), _join(zero_d), _join(scalars)):
        if dtype is None:
            continue
        if result is None:
            result = dtype
        elif _category(dtype) > _category(result):
            result = torch.promote_types(result, dtype)
    if result is None:
        raise NotLowered("no operand")
    if result.is_complex:
        raise NotLowered("complex numbers")
    return result


def float_dtype(dtype: torch.dtype) -> torch.dtype:
    """Return the dtype that a floating-point function computes in for an argument of ``dtype``."""
    return dtype if dtype.is_floating_point else torch.get_default_dtype()
