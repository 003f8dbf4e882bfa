"""Metadata of tensors that is known ahead of time, and tensors brought into a layout that was traced.

The trace assumes that a gradient is dense, with the dimension order of its output. A gradient from autograd
may be expanded (the gradient of a sum) or permuted, and a compiler with fixed strides would misread it.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, TypeAlias

import torch

from fxstack_functionalize.tracer.symbols import hint_of


@dataclass(frozen=True, slots=True)
class TensorMeta:
    """The metadata of a strided tensor, with those methods of a tensor that describe it. Sizes may be symbolic."""

    dtype: torch.dtype
    device: torch.device
    shape: tuple[Any, ...]
    strides: tuple[Any, ...]
    contiguous: bool
    """Whether the strides are those of a contiguous tensor."""

    layout = torch.strided

    def dim(self) -> int:
        return len(self.shape)

    def stride(self, dim: int | None = None) -> Any:
        return self.strides if dim is None else self.strides[dim]

    def is_contiguous(self) -> bool:
        return self.contiguous


Example: TypeAlias = torch.Tensor | TensorMeta
"""The metadata of a tensor ahead of time; a fake tensor if the layout is not strided."""


# Limits: a gradient has the layout of the result. If the incoming gradient has other strides, eager's
# gradient may have the incoming strides.


def dense_like(example: Example) -> Callable[[torch.Tensor], torch.Tensor]:
    """Return a function that makes a tensor dense, with the dimension order of ``example``.

    The function returns the tensor itself if it is. A new view of its memory could become the gradient of a
    leaf: autograd keeps a tensor that has no other reference.
    """
    order, inverse = dimension_order(example)
    if order == inverse == sorted(order):
        return lambda tangent: tangent.contiguous()

    def dense(tangent: torch.Tensor) -> torch.Tensor:
        permuted = tangent.permute(order)
        laid_out = permuted.contiguous()
        return tangent if laid_out is permuted else laid_out.permute(inverse)

    return dense


def tangent_reader(position: int, example: Example) -> Callable[[Sequence[Any], Any], torch.Tensor]:
    """Return a function that takes gradient ``position`` from autograd, in the layout of ``example``.

    The function takes the gradients and the sizes of a call: position -> size, or None for all. If the
    gradient is missing, it returns zeros of this size. If the sizes are None, it uses the size of
    ``example``.
    """
    fix, (order, inverse) = dense_like(example), dimension_order(example)

    def read(grads: Sequence[Any], sizes: Any) -> torch.Tensor:
        """Return the gradient of one output with the strides that the graph expects; zeros for None.

        ``sizes``: the sizes of all outputs in this call, None if no size is symbolic.
        """
        if grads[position] is not None:
            return fix(grads[position])
        size = example.shape if sizes is None else sizes[position]
        dense = [size[dim] for dim in order]
        return torch.zeros(dense, dtype=example.dtype, device=example.device).permute(inverse)

    return read


def dimension_order(example: Example) -> tuple[list[int], list[int]]:
    """Return (dimensions from outermost to innermost in memory, inverse permutation). Ties keep their order."""
    order = list(range(example.dim()))
    if not example.is_contiguous():
        strides = [hint_of(stride) for stride in example.stride()]
        order.sort(key=lambda dim: -strides[dim])
    return order, [order.index(dim) for dim in range(len(order))]
