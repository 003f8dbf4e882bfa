"""The thread state in which a compiled graph runs: no autograd, no autocast, whatever is on around it."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import torch

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from fxstack_functionalize.metadata import GraphInfo

    Call = Callable[[list[Any]], Sequence[Any]]


def call_guard(info: GraphInfo, call: Call) -> Call:
    """Return ``call`` without gradients, and without autocast where the graph holds the casts itself."""
    if info.autocast:
        call = without_autocast(call)
    call = without_views(call)
    if not (info.grad_mode and info.grad_inputs):
        return call

    def without_grad(args: list[Any]) -> Sequence[Any]:
        torch._C._set_grad_enabled(False)
        try:
            return call(args)
        finally:
            torch._C._set_grad_enabled(True)

    return without_grad


def without_views(call: Call) -> Call:
    """Return ``call`` without the bookkeeping of views and versions: what a graph returns is no view to autograd."""
    keys = torch._C.DispatchKeySet(torch._C.DispatchKey.ADInplaceOrView)

    def guarded(args: list[Any]) -> Sequence[Any]:
        with torch._C._ExcludeDispatchKeyGuard(keys):
            return call(args)

    return guarded


def without_autocast(call: Call) -> Call:
    def guarded(args: list[Any]) -> Sequence[Any]:
        with torch._C._DisableAutocast():
            return call(args)

    return guarded
