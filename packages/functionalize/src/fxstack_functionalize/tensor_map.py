"""Which proxy stands for which tensor.

torch keeps this in a dictionary of weak references; here tensors are fake and live as long as the trace anyway, and
looking them up by identity is several times faster.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Iterator

    import torch


class TensorMap:
    """Which proxy holds which tensor, by identity. Keeps the tensors (fake ones) alive as long as the trace."""

    def __init__(self) -> None:
        self._entries: dict[int, tuple[torch.Tensor, Any]] = {}

    def __getitem__(self, tensor: torch.Tensor) -> Any:
        return self._entries[id(tensor)][1]

    def __setitem__(self, tensor: torch.Tensor, proxy: Any) -> None:
        self._entries[id(tensor)] = (tensor, proxy)

    def __contains__(self, tensor: torch.Tensor) -> bool:
        return id(tensor) in self._entries

    def get(self, tensor: torch.Tensor, default: Any = None) -> Any:
        entry = self._entries.get(id(tensor))
        return default if entry is None else entry[1]

    def items(self) -> Iterator[tuple[torch.Tensor, Any]]:
        return iter(self._entries.values())
