"""The thread state in which a compiled graph runs: no autograd, no autocast, whatever is on around it."""

from __future__ import annotations

from contextlib import ExitStack, contextmanager
from typing import TYPE_CHECKING, Any

import torch

from fxstack_functionalize import torch_compat

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    from fxstack_functionalize.runtime.source import Source

    Call = Callable[[list[Any]], Sequence[Any]]

# Limits: calls under torch.func transforms or forward-mode AD from outside run the captured graph in eager.

_VIEW_KEY = torch_compat.DispatchKey.ADInplaceOrView
"""The dispatch key that keeps track of views and versions: what a graph returns is no view to autograd."""


@contextmanager
def without_views(source: Source) -> Iterator[None]:
    """Generate what is added inside with the bookkeeping of views and versions off.

    Torch's own guard object costs a microsecond a call; setting the key and putting it back costs less than half of that.
    """
    source.add(
        "excluded = is_excluded(view_key)",
        is_excluded=torch_compat.dispatch_tls_is_dispatch_key_excluded,
        view_key=_VIEW_KEY,
    )
    source.add("exclude(view_key, True)", exclude=torch_compat.dispatch_tls_set_dispatch_key_excluded)
    with source.trying():
        yield
    source.add("finally:")
    source.add("    exclude(view_key, excluded)")


def without_autocast(call: Call) -> Call:
    """Return ``call`` with autocast off: the graph holds the casts itself."""

    def guarded(args: list[Any]) -> Sequence[Any]:
        if not torch_compat.is_any_autocast_enabled():
            return call(args)
        with torch_compat.DisableAutocast():
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
