"""Searches for installed packages and programs: ``find_spec``, ``importlib.metadata.version``,
``shutil.which``.

The search runs while tracing. Guards cover the paths that are searched, and which modules are loaded. The
files in these paths are assumed not to change while the process runs.
"""

from __future__ import annotations

import importlib.metadata
import importlib.util
import os
import shutil
import sys
from typing import Any

from fxstack_capture.callers import plainly
from fxstack_capture.calls.native_run import run
from fxstack_capture.calls.rules import RULES
from fxstack_capture.sources import pinned
from fxstack_capture.trace.constants import is_value
from fxstack_capture.trace.state import Args, Kwargs, Trace

# ``find_spec`` calls this function for a module that is not loaded. The code before this call is traced.
_search: Any = vars(importlib.util)["_find_spec"]


@RULES.rule(_search)
def _find(trace: Trace, _fn: object, args: Args, kwargs: Kwargs) -> Any:
    """Search for a module now. Guard the paths that are searched."""
    name, *path = args
    if kwargs or len(path) != 1:
        return trace.interp.call_function(_search, args, kwargs)
    _read(trace, "meta_path")
    if path[0] is None:
        _read(trace, "path")
        return plainly(_search, (name, None), {})
    return plainly(_search, (name, list(trace.calls.call(tuple, (path[0],), {}))), {})


@RULES.rule(importlib.metadata.version)
def _version(trace: Trace, _fn: object, args: Args, kwargs: Kwargs) -> Any:
    """Read the version of a package now. Guard the paths that are searched."""
    _read(trace, "meta_path")
    _read(trace, "path")
    return plainly(importlib.metadata.version, args, kwargs)


@RULES.rule(shutil.which)
def _which(trace: Trace, _fn: object, args: Args, kwargs: Kwargs) -> Any:
    """Search for a program now. Guard the search path in the environment."""
    if not all(map(is_value, (*args, *kwargs.values()))):
        return trace.interp.call_function(shutil.which, args, kwargs)
    environment = trace.objects.enter(os.environ, pinned(os.environ, "os.environ"))
    trace.calls.call(trace.objects.load_attr(environment, "get"), ("PATH",), {})
    return plainly(shutil.which, args, kwargs)


def _read(trace: Trace, name: str) -> None:
    """Guard the items of the list ``sys.<name>``."""
    held = trace.objects.load_attr(trace.objects.enter(sys, pinned(sys, "sys")), name)
    run(trace, tuple, (held,), {})
