"""Read a source from a real frame at compile time. The program's torch-function modes are suspended
meanwhile.
"""

from __future__ import annotations

from typing import Any

from fxstack_capture.guards.accesses import RealFrame, follow
from fxstack_capture.guards.torch_state import function_mode_at
from fxstack_capture.sources import Converted, Source
from fxstack_capture.torch_side.subclasses.suspended_modes import mode_at


def resolve(source: Source, frame: RealFrame) -> Any:
    """Return the object at ``source`` in the frame that is compiled now."""
    return follow(source, frame, _convert)


def _convert(source: Converted, value: Any) -> Any:
    """Return ``source.by(value)``. The torch-function modes are suspended, so a read of them uses their saved
    list.
    """
    return mode_at(value) if source.by is function_mode_at else source.by(value)
