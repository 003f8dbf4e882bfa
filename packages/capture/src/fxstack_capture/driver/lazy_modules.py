"""Modules whose parameters are made by the first call: that call runs in plain Python, as it is."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from torch.nn.modules.lazy import LazyModuleMixin

from fxstack_capture import native
from fxstack_capture.driver.disabling import disabled_code
from fxstack_capture.guards.records import Guard, TypeIs
from fxstack_capture.guards.tree import compile_guards
from fxstack_capture.sources import pinned

if TYPE_CHECKING:
    from types import CodeType

    from fxstack_capture.emit.resolve import RealFrame


def first_lazy(root: Any) -> Any:
    """A module under ``root`` that has not been called yet; None where there is none."""
    modules = root.modules() if root is not None else ()
    return next((m for m in modules if isinstance(m, LazyModuleMixin)), None)


def uncompiled_entry(owner: Any, frame: RealFrame, code: CodeType, lazy: Any) -> Any:
    """An entry that runs the frame as it is for as long as ``lazy`` is lazy (afterwards its class is another)."""
    guard = Guard(pinned(lazy, type(lazy).__name__), TypeIs(type(lazy)))
    return native.Entry(owner, compile_guards((guard,), code), disabled_code(frame, code))
