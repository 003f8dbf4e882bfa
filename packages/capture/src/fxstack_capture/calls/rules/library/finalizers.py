"""``weakref.finalize``, and the functions that make weak references.

Finalizers are in a registry of the process, which numbers them. If a frame creates a finalizer, the outermost
function runs in plain Python (see ``calls.deaths``).
"""

from __future__ import annotations

import weakref
from collections.abc import Callable
from typing import Any

from fxstack_capture.breaks import caller, graph_break
from fxstack_capture.calls.deaths import demand_unobserved
from fxstack_capture.calls.native_run import run
from fxstack_capture.calls.rules import RULES
from fxstack_capture.trace.state import Args, Kwargs, Trace

_MEMBERS = vars(weakref.finalize)


@RULES.rule(_MEMBERS["__init__"])
def _make(trace: Trace, _fn: object, _args: Args, _kwargs: Kwargs) -> None:
    """Break the graph at the creation of a finalizer. The outermost function runs in plain Python."""
    whole = caller(trace.interp.current_frame())
    raise graph_break("side-effect-call", "weakref.finalize", whole=whole)


@RULES.rule(weakref.ref, weakref.proxy)
def _make_reference(trace: Trace, fn: Callable[..., Any], args: Args, kwargs: Kwargs) -> Any:
    """Make a weak reference. Break the graph if the program could observe the death of a new object."""
    demand_unobserved(trace, args)
    return run(trace, fn, args, kwargs)


@RULES.rule(
    *(_MEMBERS[name] for name in ("__call__", "detach", "peek")),
    *(_MEMBERS[name].fget for name in ("alive", "atexit")),
    _MEMBERS["atexit"].fset,
)
def _use_registry(_trace: Trace, fn: Callable[..., Any], _args: Args, _kwargs: Kwargs) -> Any:
    """Break the graph, because the registry of finalizers belongs to the process."""
    raise graph_break("side-effect-call", f"weakref.finalize.{fn.__name__}")
