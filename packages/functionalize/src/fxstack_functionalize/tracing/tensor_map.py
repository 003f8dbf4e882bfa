"""The map from tensors to proxies.

torch uses a dictionary of weak references. Here tensors are fake and live as long as the trace, and a look-up
by identity is several times faster.
"""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial
from typing import Any

import torch


class TensorMap:
    """Maps tensors to proxies by identity. Keeps the (fake) tensors alive as long as the trace."""

    def __init__(self) -> None:
        self._entries: dict[int, tuple[torch.Tensor, Any]] = {}

    def __getitem__(self, tensor: torch.Tensor) -> Any:
        if id(tensor) not in self._entries:
            raise KeyError(tensor)
        return self.get(tensor)

    def __setitem__(self, tensor: torch.Tensor, proxy: object) -> None:
        self._entries[id(tensor)] = (tensor, proxy)

    def set_later(self, tensor: torch.Tensor, make: partial[Any]) -> None:
        """Set a function that makes the proxy of ``tensor`` on demand."""
        self._entries[id(tensor)] = (tensor, make)

    def __contains__(self, tensor: torch.Tensor) -> bool:
        return id(tensor) in self._entries

    def get(self, tensor: torch.Tensor, default: object = None) -> Any:
        entry = self._entries.get(id(tensor))
        if entry is None:
            return default
        proxy = entry[1]
        if type(proxy) is partial:
            proxy = proxy()
            self[tensor] = proxy
        return proxy

    def items(self) -> Iterator[tuple[torch.Tensor, Any]]:
        return ((t, proxy) for t, proxy in self._entries.values() if type(proxy) is not partial)
