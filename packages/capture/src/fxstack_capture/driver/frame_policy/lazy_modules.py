"""Modules whose parameters are made by the first call: that call runs in plain Python, as it is."""

from __future__ import annotations

from typing import Any

from torch.nn.modules.lazy import LazyModuleMixin

from fxstack_capture.guards.records import Guard, TypeIs
from fxstack_capture.sources import pinned


def first_lazy(root: Any) -> Any:
    """A module under ``root`` that has not been called yet; None where there is none."""
    modules = root.modules() if root is not None else ()
    return next((m for m in modules if isinstance(m, LazyModuleMixin)), None)


def while_lazy(lazy: object) -> Guard:
    """Holds for as long as ``lazy`` is lazy: afterwards its class is another."""
    return Guard(pinned(lazy, type(lazy).__name__), TypeIs(type(lazy)))
