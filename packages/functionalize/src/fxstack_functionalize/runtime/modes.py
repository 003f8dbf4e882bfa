"""The thread state in which a compiled graph runs: no autograd, no autocast, whatever is on around it."""

from __future__ import annotations

from contextlib import ExitStack
from typing import TYPE_CHECKING, Any

import torch

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    Call = Callable[[list[Any]], Sequence[Any]]

VIEW_KEYS = torch._C.DispatchKeySet(torch._C.DispatchKey.ADInplaceOrView)
"""The dispatch key that keeps track of views and versions: what a graph returns is no view to autograd."""


def without_autocast(call: Call) -> Call:
    """Return ``call`` with autocast off: the graph holds the casts itself."""

    def guarded(args: list[Any]) -> Sequence[Any]:
        if not torch._C._is_any_autocast_enabled():
            return call(args)
        with torch._C._DisableAutocast():
            return call(args)

    return guarded


def state_now() -> Callable[[Callable[[], Any]], Any]:
    """Return what calls a function later with the grad mode and autocast of now."""
    grad_mode = torch.is_grad_enabled()
    autocast = {
        device: torch.get_autocast_dtype(device)
        for device in ("cpu", "cuda")
        if torch.is_autocast_enabled(device)
    }
    caching = torch.is_autocast_cache_enabled()

    def in_state(function: Callable[[], Any]) -> Any:
        with ExitStack() as stack:
            stack.enter_context(torch.set_grad_enabled(grad_mode))
            for device, dtype in autocast.items():
                stack.enter_context(torch.autocast(device, dtype, cache_enabled=caching))
            return function()

    return in_state
