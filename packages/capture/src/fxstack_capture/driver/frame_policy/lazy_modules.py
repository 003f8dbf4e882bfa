"""Lazy modules, whose first call creates their parameters. This call runs in plain Python."""

from __future__ import annotations

from typing import Any

from torch.nn.modules.lazy import LazyModuleMixin

from fxstack_capture.guards.records import Guard, TypeIs
from fxstack_capture.sources import pinned


def first_lazy(root: Any) -> Any:
    """A module under ``root`` that has not been called yet, or None."""
    modules = root.modules() if root is not None else ()
    return next((m for m in modules if isinstance(m, LazyModuleMixin)), None)


def while_lazy(lazy: object) -> Guard:
    """The guard that holds as long as ``lazy`` is lazy. The first call changes the class of the module."""
    return Guard(pinned(lazy, type(lazy).__name__), TypeIs(type(lazy)))
