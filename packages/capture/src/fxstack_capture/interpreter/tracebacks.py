"""Tracebacks of interpreted frames: real traceback objects that name the user's files, lines and functions.

CPython makes tracebacks of real frames only, so each entry has the frame of a stub: an empty function that carries
the file name and function name of the user's code.
"""

from __future__ import annotations

import sys
from types import CodeType, FrameType, FunctionType, TracebackType
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable

    from fxstack_capture.interpreter.frame import Frame


def _own_frame() -> FrameType:
    return _getframe()


_getframe = sys._getframe
_TEMPLATE = _own_frame.__code__


def traceback_stub(code: CodeType) -> Callable[[], FrameType]:
    """A function that gives a finished frame with the names of ``code``."""
    stub = _TEMPLATE.replace(
        co_filename=code.co_filename,
        co_name=code.co_name,
        co_qualname=code.co_qualname,
        co_firstlineno=code.co_firstlineno,
    )
    return FunctionType(stub, {"_getframe": _getframe, "__name__": code.co_name})


def add_entry(following: TracebackType | None, frame: Frame) -> TracebackType:
    """A traceback whose first entry is ``frame`` at its current line."""
    return TracebackType(following, frame.program.traceback_stub(), -1, frame.line)
