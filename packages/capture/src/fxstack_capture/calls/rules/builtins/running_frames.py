"""``sys._getframe``: who holds a frame may read its variables and its line at any later time.

So the function whose frame it is runs in plain Python as a whole; its callers, and what it calls, are compiled. What
walks over the whole stack (``inspect.stack``, ``traceback``) takes the outermost function to plain Python, since
compiled code stands for a frame with two.
"""

from __future__ import annotations

import inspect
import sys
from typing import Any

from fxstack_capture.breaks import graph_break
from fxstack_capture.calls.table import RuleTable
from fxstack_capture.trace.state import Trace

RULES = RuleTable()


_NAMES_ONLY = frozenset(("collections", "enum", "typing", "logging", "warnings", "dataclasses"))
"""Modules of Python's that look up the name or the namespace of a caller."""


@RULES.rule(sys._getframe)
def _get_frame(trace: Trace, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    frame = trace.interp.current_frame()
    reason = graph_break("side-effect-call", "sys._getframe")
    if not frame.program.library:
        reason.whole = caller(frame, args[0] if len(args) == 1 and type(args[0]) is int else 0)
    elif frame.code is inspect.currentframe.__code__:
        reason.whole = caller(frame, 1)
    elif frame.globals.get("__name__") not in _NAMES_ONLY:  # it walks to the outermost
        reason.whole = caller(frame, sys.maxsize)
    raise reason


def caller(frame: Any, depth: int) -> Any:
    """The frame that many calls further out, or the outermost."""
    while depth > 0 and frame.back is not None:
        frame, depth = frame.back, depth - 1
    return frame
