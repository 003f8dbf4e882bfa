"""Frames of tracebacks.

Frames of interpreted code are stubs (``fxstack_interchange.locations.tracebacks``) without locals.
"""

from __future__ import annotations

from types import FrameType
from typing import Any

from fxstack_capture.breaks import graph_break
from fxstack_capture.calls.table import RuleTable
from fxstack_capture.trace.state import Trace
from fxstack_interchange.locations.tracebacks import is_stub

RULES = RuleTable()


@RULES.rule(FrameType.clear)
def _clear(_trace: Trace, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
    """``frame.clear``, which ``traceback.clear_frames`` calls for every frame of a traceback."""
    if len(args) == 1 and not kwargs and isinstance(args[0], FrameType) and is_stub(args[0]):
        return
    raise graph_break("unsupported-call", "frame.clear")
