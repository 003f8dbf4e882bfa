"""Bring incoming gradients into the memory layout with which the backward was traced.

The trace assumes that a gradient is dense, with the dimension order of its output. A gradient from autograd
may be expanded (the gradient of a sum) or permuted, and a compiler with fixed strides would misread it.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

import torch

from fxstack_functionalize.metadata.records import GraphInfo
from fxstack_functionalize.runtime.examples import Example
from fxstack_functionalize.tracing.symbols import hint_of

# Limits: a gradient has the layout of the result. If the incoming gradient has other strides, eager's
# gradient may have these.


def dense_like(example: Example) -> Callable[[torch.Tensor], torch.Tensor]:
    """Return a function that makes a tensor dense, with the dimension order of ``example``."""
    order = _dimension_order(example)
    if order == list(range(example.dim())):
        return lambda tangent: tangent.contiguous()
    inverse = [order.index(dim) for dim in range(len(order))]

    def fix(tangent: torch.Tensor) -> torch.Tensor:
        return tangent.permute(order).contiguous().permute(inverse)

    return fix


def zeros_like(example: Example) -> Callable[[Sequence[int]], torch.Tensor]:
    """Return a function that makes zeros of a size, with the dimension order of ``example``."""
    order = _dimension_order(example)
    make = partial(torch.zeros, dtype=example.dtype, device=example.device)
    if order == sorted(order):
        return make
    places = [order.index(dim) for dim in range(len(order))]
    return lambda size: make([size[dim] for dim in order]).permute(places)


def sizes_keeper(info: GraphInfo, *, symbolic: bool) -> Callable[[Sequence[Any]], Any] | None:
    """Return a function that keeps the sizes of zeros for missing gradients; None if they are static."""
    positions = info.differentiable
    if not symbolic:
        return None
    return lambda results: {position: results[position].shape for position in positions}


def _dimension_order(example: Example) -> list[int]:
    """Return dimensions from outermost to innermost in memory. Ties keep their order."""
    if example.is_contiguous():
        return list(range(example.dim()))
    strides = [hint_of(stride) for stride in example.stride()]
    return sorted(range(example.dim()), key=lambda dim: -strides[dim])
