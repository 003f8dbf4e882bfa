"""Python functions over tensors as guarded FX graphs."""

from __future__ import annotations

from fxstack_capture.api import (
    BackendError,
    ShapeProfile,
    Unsupported,
    capture,
    disable,
    explain,
    graph_break,
    is_compiling,
    optimize,
    profile_of,
    reset,
)
from fxstack_capture.options import CaptureOptions
from fxstack_capture.shapes.marks import (
    mark_dynamic,
    mark_static,
    mark_unbacked,
    maybe_mark_dynamic,
)

__all__ = [
    "BackendError",
    "CaptureOptions",
    "ShapeProfile",
    "Unsupported",
    "capture",
    "disable",
    "explain",
    "graph_break",
    "is_compiling",
    "mark_dynamic",
    "mark_static",
    "mark_unbacked",
    "maybe_mark_dynamic",
    "optimize",
    "profile_of",
    "reset",
]
