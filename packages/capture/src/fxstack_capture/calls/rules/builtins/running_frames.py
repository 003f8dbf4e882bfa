"""``sys._getframe``: the owner of a frame object may read the frame's variables and line at any later time.

Therefore the whole function of this frame runs in plain Python. Its callers and callees are compiled. Code
that walks over the whole stack (``inspect.stack``, ``traceback``) makes the outermost function run in plain
Python, because compiled code has two frames for one frame of the program.
"""

from __future__ import annotations

import inspect
import sys
import threading
import typing
from types import FrameType, FunctionType
from typing import Any

from fxstack_capture.breaks import caller, graph_break
from fxstack_capture.calls.rules import RULES
from fxstack_capture.trace.state import Args, Kwargs, Trace
from fxstack_interchange.locations.tracebacks import is_stub

_NAMES_ONLY = frozenset(("collections", "enum", "typing", "logging", "warnings", "dataclasses"))
"""Modules of the standard library that read only the name or the namespace of a calling frame."""


@RULES.rule(sys._getframe)
def _get_frame(trace: Trace, _fn: object, args: Args, kwargs: Kwargs) -> Any:
    """Break the graph. The whole function whose frame is read runs in plain Python, unless a library reads
    only names of the frame.
    """
    frame = trace.interp.current_frame()
    whole = None
    if not frame.program.library:
        whole = caller(frame, args[0] if len(args) == 1 and type(args[0]) is int else 0)
    elif frame.code is inspect.currentframe.__code__:
        whole = caller(frame, 1)
    elif frame.globals.get("__name__") not in _NAMES_ONLY:  # such code walks up to the outermost frame
        whole = caller(frame)
    raise graph_break("side-effect-call", "sys._getframe", whole=whole)


@RULES.rule(vars(typing)["_caller"])
def _name_of_caller(trace: Trace, _fn: object, args: Args, kwargs: Kwargs) -> Any:
    """Return the name of the module that calls a function of ``typing``."""
    (depth,) = args[:1] or (kwargs.get("depth", 1),)
    frame = caller(trace.interp.current_frame(), depth)
    return frame.globals.get("__name__", kwargs.get("default", "__main__"))


@RULES.rule(FrameType.clear)
def _clear(_trace: Trace, _fn: object, args: Args, kwargs: Kwargs) -> None:
    """Skip ``frame.clear``, which ``traceback.clear_frames`` calls for every frame of a traceback. Break the
    graph for any other frame.

    The frames of interpreted code are stubs without locals, so there is nothing to clear.
    """
    if len(args) == 1 and not kwargs and isinstance(args[0], FrameType) and is_stub(args[0]):
        return
    raise graph_break("unsupported-call", "frame.clear")


_DEBUGGING = frozenset({"set_trace", "settrace", "breakpoint"})
"""Names of functions that call a debugger."""


def is_debugger(fn: FunctionType) -> bool:
    """Whether ``fn`` is a function such as ``pdb.set_trace``: it starts a debugger in the frame of its
    caller.
    """
    return fn.__name__ in _DEBUGGING and not str(fn.__module__).endswith(".comptime")


@RULES.rule(breakpoint, sys.settrace, threading.settrace)
def call_debugger(trace: Trace, _fn: object, _args: Args, _kwargs: Kwargs) -> Any:
    """Break the graph, and run the frame that calls a debugger in plain Python."""
    frame = trace.interp.current_frame()
    raise graph_break("debugger", frame.code.co_qualname, whole=frame)
