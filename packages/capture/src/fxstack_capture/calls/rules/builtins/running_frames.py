"""``sys._getframe``: the owner of a frame object may read the frame's variables and line at any later time.

The function of this frame therefore runs in plain Python as a whole. Its callers and callees are compiled.
Code that walks over the whole stack (``inspect.stack``, ``traceback``) makes the outermost function run in
plain Python, because compiled code has two frames for one frame of the program.
"""

from __future__ import annotations

import inspect
import sys
import threading
import typing
from types import FunctionType
from typing import Any

from fxstack_capture.breaks import caller, graph_break
from fxstack_capture.calls.table import RuleTable
from fxstack_capture.trace.state import Trace

RULES = RuleTable()


_NAMES_ONLY = frozenset(("collections", "enum", "typing", "logging", "warnings", "dataclasses"))
"""Modules of Python's that look up the name or the namespace of a caller."""


@RULES.rule(sys._getframe)
def _get_frame(trace: Trace, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    frame = trace.interp.current_frame()
    whole = None
    if not frame.program.library:
        whole = caller(frame, args[0] if len(args) == 1 and type(args[0]) is int else 0)
    elif frame.code is inspect.currentframe.__code__:
        whole = caller(frame, 1)
    elif frame.globals.get("__name__") not in _NAMES_ONLY:  # such code walks to the outermost frame
        whole = caller(frame)
    raise graph_break("side-effect-call", "sys._getframe", whole=whole)


@RULES.rule(vars(typing)["_caller"])
def _name_of_caller(trace: Trace, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    """Return the name of the module that calls a function of ``typing``."""
    frame = caller(trace.interp.current_frame(), kwargs.get("depth", args[0] if args else 1))
    return frame.globals.get("__name__", kwargs.get("default", "__main__"))


_DEBUGGING = frozenset({"set_trace", "settrace", "breakpoint"})
"""The names of functions with which a program calls a debugger."""


def is_debugger(fn: FunctionType) -> bool:
    """Whether a function calls a debugger, which follows the frame of the caller from here on."""
    return fn.__name__ in _DEBUGGING and not str(fn.__module__).endswith(".comptime")


@RULES.rule(breakpoint, sys.settrace, threading.settrace)
def debugger(trace: Trace, _args: tuple[Any, ...], _kwargs: dict[str, Any]) -> Any:
    """Run the frame that calls a debugger in plain Python."""
    frame = trace.interp.current_frame()
    raise graph_break("debugger", frame.code.co_qualname, whole=frame)
