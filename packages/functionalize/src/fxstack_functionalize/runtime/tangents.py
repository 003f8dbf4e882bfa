"""Bring incoming gradients into the memory layout that the backward was traced with.

The trace assumes that a gradient is dense, its dimensions in the order of its output's. What autograd hands over
may be expanded (the gradient of a sum) or permuted, and a compiler that fixed its strides would misread it.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from fxstack_functionalize.symbols import hint_of

if TYPE_CHECKING:
    from collections.abc import Callable

    import torch

    from fxstack_functionalize.runtime.plan import Example


def dense_like(example: Example) -> Callable[[torch.Tensor], torch.Tensor]:
    """Return a function that makes a tensor of the same size dense, its dimensions in the order of ``example``'s."""
    order = _dimension_order(example)
    if order == list(range(example.dim())):
        return lambda tangent: tangent.contiguous()
    inverse = [order.index(dim) for dim in range(len(order))]

    def fix(tangent: torch.Tensor) -> torch.Tensor:
        return tangent.permute(order).contiguous().permute(inverse)

    return fix


def _dimension_order(example: Example) -> list[int]:
    """Dimensions from the outermost to the innermost in memory; ties keep their order."""
    if example.is_contiguous():
        return list(range(example.dim()))
    strides = [hint_of(stride) for stride in example.stride()]
    return sorted(range(example.dim()), key=lambda dim: -strides[dim])
