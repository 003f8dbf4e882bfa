"""Bring incoming gradients into the memory layout with which the backward was traced.

The trace assumes that a gradient is dense, with the dimension order of its output. A gradient from autograd
may be expanded (the gradient of a sum) or permuted, and a compiler with fixed strides would misread it.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import torch

from fxstack_functionalize.metadata.tensor_metadata import Example
from fxstack_functionalize.tracer.symbols import hint_of

# Limits: a gradient has the layout of the result. If the incoming gradient has other strides, eager's
# gradient may have these.


def dense_like(example: Example) -> Callable[[torch.Tensor], torch.Tensor]:
    """Return a function that makes a tensor dense, with the dimension order of ``example``."""
    order, inverse = dimension_order(example)
    if order == inverse == sorted(order):
        return lambda tangent: tangent.contiguous()
    return lambda tangent: tangent.permute(order).contiguous().permute(inverse)


def tangent_reader(position: int, example: Example) -> Callable[[Sequence[Any], Any], torch.Tensor]:
    """Return a function that takes gradient ``position`` from autograd, in the layout of ``example``.

    If the gradient is missing, the function returns zeros of the size of ``example``. Sizes of the call
    replace it: they map positions to sizes, or are None.
    """
    fix, (order, inverse) = dense_like(example), dimension_order(example)

    def read(grads: Sequence[Any], sizes: Any) -> torch.Tensor:
        if grads[position] is not None:
            return fix(grads[position])
        size = example.shape if sizes is None else sizes[position]
        dense = [size[dim] for dim in order]
        return torch.zeros(dense, dtype=example.dtype, device=example.device).permute(inverse)

    return read


def dimension_order(example: Example) -> tuple[list[int], list[int]]:
    """Return dimensions from outermost to innermost in memory (ties keep their order), and the inverse."""
    order = list(range(example.dim()))
    if not example.is_contiguous():
        strides = [hint_of(stride) for stride in example.stride()]
        order.sort(key=lambda dim: -strides[dim])
    return order, [order.index(dim) for dim in range(len(order))]
