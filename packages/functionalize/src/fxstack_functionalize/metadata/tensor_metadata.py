"""The metadata of a tensor that is known ahead of time."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, TypeAlias

import torch


@dataclass(frozen=True, slots=True)
class TensorMeta:
    """The metadata of a strided tensor, with the describing methods of a tensor. Sizes may be symbolic."""

    dtype: torch.dtype
    device: torch.device
    shape: tuple[Any, ...]
    strides: tuple[Any, ...]
    contiguous: bool

    layout = torch.strided

    def dim(self) -> int:
        return len(self.shape)

    def stride(self, dim: int | None = None) -> Any:
        return self.strides if dim is None else self.strides[dim]

    def is_contiguous(self) -> bool:
        return self.contiguous


Example: TypeAlias = torch.Tensor | TensorMeta
"""The metadata of a tensor ahead of time; a fake tensor if the layout is not strided."""
