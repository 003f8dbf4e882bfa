"""Gradients of values that a mask writes into a tensor (``x[mask] = values``), with the size of the values.

A place is a True element of the mask. The number of places depends on data. torch's derivative reads the
gradient at each place, and then sums over broadcast places. But the trace knows the number of values: there
is one value for each place, or one value for all places. If the number of values depends on data as well, the
gradient covers both cases.

A mask beside other indices (``x[mask, [1]] = values``) is replaced by its places, which broadcast with the
other indices. If other indices or the values have several elements, the mask has as many places, or one
place. Otherwise the number of places is read from the masks when the graph runs.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch.fx.experimental.symbolic_shapes import free_unbacked_symbols

from fxstack_functionalize import torch_compat

MASKS = frozenset({torch.bool, torch.uint8})
DERIVATIVES = frozenset({"IndexPutBackward0", "IndexPutImplBackward0", "CopySlices"})
"""Autograd nodes that read a gradient at a mask. ``CopySlices`` is the node of any store into a view."""
VALUES = 1
"""The index of the gradient of the values among the results of such a node."""


def index_gradient(x: torch.Tensor, indices: Sequence[torch.Tensor | None]) -> Any:
    """Return ``x[indices]`` for a call from the derivative of a store at a mask; NotImplemented for any other call."""
    given_indices = [(dim, index) for dim, index in enumerate(indices) if index is not None]
    masks = [index for _, index in given_indices if index.dtype in MASKS]
    if not masks or not all(mask.dim() for mask in masks):
        return NotImplemented
    node = torch_compat.current_autograd_node()
    if node is None or node.name().rpartition("::")[2] not in DERIVATIVES:
        return NotImplemented
    values, position = node.next_functions[VALUES]
    shape = values._input_metadata[position].shape
    trailing = _trailing_dims(x, indices)
    count = shape[-trailing - 1] if len(shape) > trailing else 1
    if len(given_indices) > 1:
        return _at_several(x, indices, count, trailing)
    dim, mask = given_indices[0]
    if free_unbacked_symbols(count):
        return _gather_by_number(x, dim, mask, count)
    if count == 1:
        is_position = mask.bool().reshape(*mask.shape, *[1] * trailing)
        return torch.where(is_position, x, 0).sum(list(range(dim, dim + mask.dim()))).unsqueeze(dim)
    positions = torch.nonzero_static(mask, size=count).unbind(1)
    return torch.ops.aten.index.Tensor(x, [*[None] * dim, *positions])


def _trailing_dims(x: torch.Tensor, indices: Sequence[torch.Tensor | None]) -> int:
    """Return the number of dimensions of ``x[indices]`` behind the dimension of the mask's places."""
    given_dims = [dim for dim, index in enumerate(indices) if index is not None]
    indexed = sum(map(_indexed_dims, (indices[dim] for dim in given_dims)))
    together = given_dims[-1] - given_dims[0] + 1 == len(given_dims)
    return int(x.dim() - indexed - (given_dims[0] if together else 0))


def _indexed_dims(index: torch.Tensor | None) -> int:
    """Return the number of dimensions that ``index`` indexes."""
    return index.dim() if index is not None and index.dtype in MASKS else 1


def _at_several(
    x: torch.Tensor, indices: Sequence[torch.Tensor | None], count: int, trailing: int
) -> torch.Tensor:
    """Return the gradient at masks and other indices.

    If the number of places is unknown, return the sum over the places.
    """
    masks = [index for index in indices if index is not None and index.dtype in MASKS]
    other_indices = [index for index in indices if index is not None and index.dtype not in MASKS]
    along = next((index.shape[-1] for index in other_indices if index.dim() and index.shape[-1] != 1), count)
    if along != 1:
        return torch.ops.aten.index.Tensor(x, _with_positions(indices, along))
    sizes = [mask.numel() for mask in masks]
    max_count = 0 if 0 in sizes else max(sizes)
    read = torch.ops.aten.index.Tensor(x, _with_positions(indices, max_count))
    counts = torch.stack([mask.count_nonzero() for mask in masks])
    count_of_positions = torch.where((counts == 0).any(), 0, counts.amax())
    valid = torch.arange(max_count, device=x.device) < count_of_positions.to(x.device)
    valid = valid.reshape(-1, *[1] * trailing)
    return torch.where(valid, read, 0).sum(-trailing - 1, keepdim=True)


def _with_positions(indices: Sequence[torch.Tensor | None], count: int) -> list[torch.Tensor | None]:
    """Return ``indices`` with each mask replaced by ``count`` places. A single place is repeated."""
    expanded: list[torch.Tensor | None] = []
    for index in indices:
        if index is None or index.dtype not in MASKS:
            expanded.append(index)
            continue
        positions = torch.nonzero_static(index, size=count)
        single = index.count_nonzero() == 1
        repeated = torch.where(single, positions[:1], positions)
        expanded += repeated.unbind(1)
    return expanded


def _gather_by_number(x: torch.Tensor, dim: int, mask: torch.Tensor, count: Any) -> torch.Tensor:
    """Return the gradient of ``count`` values if ``count`` depends on data: place number i goes to value number i.

    Further places are added to the last value. Elements outside the mask go to one extra row, which is
    dropped.
    """
    is_position = mask.bool().flatten()
    number = (is_position.cumsum(0) - 1).clamp(max=count - 1)
    rows = x.flatten(dim, dim + mask.dim() - 1)
    shape = list(rows.shape)
    shape[dim] = count + 1
    target = torch.where(is_position, number, count)
    return x.new_zeros(shape).index_add(dim, target, rows).narrow(dim, 0, count)


MASKED_VALUES: dict[Any, Callable[..., Any]] = {torch.ops.aten.index.Tensor: index_gradient}
