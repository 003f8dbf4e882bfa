"""The thread state of a compiled graph: autograd and autocast are off, whatever the state of the caller."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any

from fxstack_functionalize import torch_compat
from fxstack_functionalize.runtime.source import Source

Call = Callable[[list[Any]], Sequence[Any]]

# Limits: calls under torch.func transforms or forward-mode AD from outside run the captured graph in eager.

_VIEW_KEY = torch_compat.DispatchKey.ADInplaceOrView
"""The dispatch key for views and versions. Autograd must not see results of a compiled graph as views."""


@contextmanager
def without_views(source: Source) -> Iterator[None]:
    """Exclude the view and version bookkeeping from the statements that are added inside.

    torch's guard object costs a microsecond a call; setting and restoring the key costs less than half.
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


@contextmanager
def without_grad(source: Source) -> Iterator[None]:
    """Turn grad mode off for the statements that are added inside. The caller's grad mode is on."""
    source.add("set_grad(False)", set_grad=torch_compat.set_grad_enabled)
    with source.trying():
        yield
    source.add("finally:")
    source.add("    set_grad(True)")


def without_autocast(call: Call) -> Call:
    """Return ``call`` with autocast off, because the graph contains the casts."""

    def guarded(args: list[Any]) -> Sequence[Any]:
        if not torch_compat.is_any_autocast_enabled():
            return call(args)
        with torch_compat.DisableAutocast():
            return call(args)

    return guarded
