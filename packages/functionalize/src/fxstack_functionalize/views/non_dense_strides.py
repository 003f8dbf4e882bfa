"""Tensors with gaps between their elements (``x[:, :5]``): give their values the same strides in memory.

In-place operators compute dense values. Whether a later ``reshape`` or ``contiguous`` returns a view or a
copy depends on the gaps that the changed tensor has in eager.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import torch
from torch.fx.experimental.symbolic_shapes import statically_known_true

from fxstack_functionalize import torch_compat
from fxstack_functionalize.tracer.engine import Engine, current_value

# Limits: a tensor with non-dense strides that the graph makes, changes in place and returns is dense. normal_
# on such a tensor of 16 elements or more draws other numbers than eager.


def same_strides(tensor: torch.Tensor, strides: Sequence[Any]) -> bool:
    """Whether ``tensor`` certainly has these strides. Strides of dimensions of size 1 do not count."""
    return all(
        statically_known_true(size == 1) or statically_known_true(own == stride)
        for size, own, stride in zip(tensor.shape, tensor.stride(), strides, strict=True)
    )


def with_non_dense_strides(value: torch.Tensor, strides: Sequence[Any], offset: object = 0) -> torch.Tensor:
    """Copy ``value`` into new memory with these strides and this storage ``offset``."""
    reach = sum((n - 1) * step for n, step in zip(value.shape, strides, strict=True)) + 1
    memory = value.new_zeros((offset + reach,))
    filled = torch.ops.aten.as_strided_scatter.default(memory, value, value.shape, strides, offset)
    return filled.as_strided(value.shape, strides, offset)


def lay_out(engine: Engine, owner: torch.Tensor, strides: Sequence[Any] | None, offset: object = 0) -> None:
    """Give the value of ``owner`` these strides (None: its own) and this storage ``offset``."""
    value = current_value(engine, owner)
    with plain_only():
        laid_out = with_non_dense_strides(value, strides or value.stride(), offset)
        replace_value(engine.core(owner), laid_out)


@contextmanager
def plain_only() -> Iterator[None]:
    """Run operators on the values under functional tensors, without autograd history."""
    excluded = torch_compat.ExcludeDispatchKeyGuard(
        torch_compat.DispatchKeySet(torch_compat.DispatchKey.Functionalize)
    )
    with torch.no_grad(), excluded:
        yield


def replace_value(core: torch.Tensor, value: torch.Tensor) -> None:
    """Replace the value of a functional tensor (C++ level), and update the owner of its memory."""
    torch_compat.functionalize_replace(core, value)
    torch_compat.functionalize_commit_update(core)
    torch_compat.functionalize_sync(core)
