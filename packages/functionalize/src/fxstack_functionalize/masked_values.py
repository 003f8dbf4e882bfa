"""Gradients of values that a mask puts into a tensor (``x[mask] = values``), in the size that the values have.

Torch's derivative reads the gradient at the mask, whose number of places only data knows, and sums what was broadcast
afterwards. How many values there were is known when the backward is traced: there are as many places, or there is one value
for all.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import torch

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

MASKS = frozenset({torch.bool, torch.uint8})
DERIVATIVES = frozenset({"IndexPutBackward0", "IndexPutImplBackward0", "CopySlices"})
"""Nodes of autograd that read a gradient at a mask; the last is that of a store into a part of a tensor, whatever stores."""
VALUES = 1
"""Which of such a node's results is the gradient of the values."""


def of_values(x: torch.Tensor, indices: Sequence[torch.Tensor | None]) -> Any:
    """``x[indices]``, asked for by the derivative of such a store; NotImplemented for all else."""
    given = [(dim, index) for dim, index in enumerate(indices) if index is not None]
    if len(given) != 1 or given[0][1].dtype not in MASKS:
        return NotImplemented
    node = torch._C._current_autograd_node()
    if node is None or node.name().rpartition("::")[2] not in DERIVATIVES:
        return NotImplemented
    values, position = node.next_functions[VALUES]
    shape = values._input_metadata[position].shape
    dim, mask = given[0]
    behind = x.dim() - dim - mask.dim()
    count = shape[-behind - 1] if len(shape) > behind else 1
    return _sum(x, dim, mask, behind) if count == 1 else _read(x, dim, mask, count)


def _read(x: torch.Tensor, dim: int, mask: torch.Tensor, count: int) -> torch.Tensor:
    places = torch.nonzero_static(mask, size=count).unbind(1)
    return torch.ops.aten.index.Tensor(x, [*[None] * dim, *places])


def _sum(x: torch.Tensor, dim: int, mask: torch.Tensor, behind: int) -> torch.Tensor:
    taken = mask.bool().reshape(*mask.shape, *[1] * behind)
    dims = list(range(dim, dim + mask.dim()))
    return torch.where(taken, x, 0).sum(dims).unsqueeze(dim)


MASKED_VALUES: dict[Any, Callable[..., Any]] = {torch.ops.aten.index.Tensor: of_values}
