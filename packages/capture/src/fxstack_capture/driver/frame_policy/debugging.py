"""Debuggers: a frame that a debugger follows runs in plain Python, with its own lines and variables."""

from __future__ import annotations

import os
import sys
from pathlib import Path
from typing import Any, Final

from fxstack_capture import native
from fxstack_capture.driver.errors import TracingWarning
from fxstack_interchange.user_warnings import warn_user

_MEASURING: Final = frozenset({"coverage", "hypothesis", "trace"})
"""Packages whose trace functions only record the lines that run."""

_reported: set[str] = set()


def is_debugged(trace_function: Any = None) -> bool:
    """Whether frames run in plain Python because of a debugger. The frame hook calls this function.

    ``trace_function`` is the function given to ``sys.settrace``. It is None if the debugger uses
    ``sys.monitoring``. The first debugger causes a warning.
    """
    owner = getattr(trace_function, "__self__", trace_function)
    module = getattr(owner, "__module__", None) or type(owner).__module__
    if str(module).partition(".")[0] in _MEASURING or _stops_in_generated_code(owner):
        return False
    if not _reported:
        _reported.add("a debugger")
        warn_user(
            "fxstack: a debugger or a trace function (sys.settrace, sys.monitoring) is on: compiled functions run in "
            "plain Python meanwhile, with their own lines and variables.",
            TracingWarning,
        )
    return True


def _stops_in_generated_code(debugger: object) -> bool:
    """Whether a ``bdb.Bdb`` has a breakpoint in a generated host program, a file in ``FXSTACK_DEBUG_DIR``."""
    folder, files = os.environ.get("FXSTACK_DEBUG_DIR"), getattr(debugger, "breaks", None)
    if not folder or not isinstance(files, dict):
        return False
    return any(Path(folder).absolute() in Path(file).parents for file in files)


def is_on() -> bool:
    """Whether a debugger is on in this thread, so that frames run in plain Python. ``FirstCall`` asks this."""
    monitoring = getattr(sys, "monitoring", None)
    tool = None if monitoring is None else monitoring.get_tool(monitoring.DEBUGGER_ID)
    function = sys.gettrace()
    return (function is not None or tool is not None) and is_debugged(function)


if native.AVAILABLE:
    native.use_debugging(is_debugged)
