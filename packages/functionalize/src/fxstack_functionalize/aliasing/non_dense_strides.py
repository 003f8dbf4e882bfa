"""Values of tensors between whose elements there are others (``x[:, :5]``), in memory as the tensors are.

What an in-place operator computes is dense. Whether ``reshape`` or ``contiguous`` then give a view or a copy depends on the
gaps that the changed tensor still has in eager.
"""

from __future__ import annotations

from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

import torch
from torch.fx.experimental.symbolic_shapes import statically_known_true

from fxstack_functionalize import torch_compat

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence


# Limits: a tensor with non-dense strides that the graph makes, changes in place and returns is dense. normal_
# on such a tensor of 16 elements or more draws other numbers than eager.


def same_strides(tensor: torch.Tensor, strides: Sequence[Any]) -> bool:
    """Whether ``tensor`` certainly has these strides, where a stride means something."""
    return all(
        statically_known_true(size == 1) or statically_known_true(own == stride)
        for size, own, stride in zip(tensor.shape, tensor.stride(), strides, strict=True)
    )


def with_non_dense_strides(value: torch.Tensor, strides: Sequence[Any], offset: object = 0) -> torch.Tensor:
    """Copy ``value`` into new memory with these strides, ``offset`` elements behind its start."""
    reach = sum((n - 1) * step for n, step in zip(value.shape, strides, strict=True)) + 1
    memory = value.new_zeros((offset + reach,))
    filled = torch.ops.aten.as_strided_scatter.default(memory, value, value.shape, strides, offset)
    return filled.as_strided(value.shape, strides, offset)


@contextmanager
def plain_only() -> Iterator[None]:
    """Work on the values under functional tensors, without history."""
    excluded = torch_compat.ExcludeDispatchKeyGuard(
        torch_compat.DispatchKeySet(torch_compat.DispatchKey.Functionalize)
    )
    with torch.no_grad(), excluded:
        yield


def replace_value(core: torch.Tensor, value: torch.Tensor) -> None:
    """Put ``value`` into a functional tensor (C++ level), and into what owns its memory."""
    torch_compat.functionalize_replace(core, value)
    torch_compat.functionalize_commit_update(core)
    torch_compat.functionalize_sync(core)
