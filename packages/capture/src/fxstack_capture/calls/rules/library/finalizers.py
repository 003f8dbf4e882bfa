"""``weakref.finalize``, and the functions that make weak references.

Finalizers live in a registry of the process, which numbers them. If a frame creates a finalizer, the outermost
function runs in plain Python; see ``calls.deaths``.
"""

from __future__ import annotations

import weakref
from collections.abc import Callable
from typing import Any

from fxstack_capture.breaks import caller, graph_break
from fxstack_capture.calls.deaths import demand_unobserved
from fxstack_capture.calls.native_run import run
from fxstack_capture.calls.table import Rule, RuleTable
from fxstack_capture.trace.state import Trace

RULES: RuleTable = RuleTable()

_MEMBERS = vars(weakref.finalize)


@RULES.rule(_MEMBERS["__init__"])
def _make(trace: Trace, _args: tuple[Any, ...], _kwargs: dict[str, Any]) -> None:
    whole = caller(trace.interp.current_frame())
    raise graph_break("side-effect-call", "weakref.finalize", whole=whole)


def _observing(make: Callable[..., object]) -> Rule:
    def rule(trace: Trace, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        demand_unobserved(trace, args)
        return run(trace, make, args, kwargs)

    return rule


for _make_reference in (weakref.ref, weakref.proxy):
    RULES.add(_make_reference, _observing(_make_reference))


def _of_registry(name: str) -> Rule:
    def rule(_trace: Trace, _args: tuple[Any, ...], _kwargs: dict[str, Any]) -> Any:
        raise graph_break("side-effect-call", f"weakref.finalize.{name}")

    return rule


for _name in ("__call__", "detach", "peek"):
    RULES.add(_MEMBERS[_name], _of_registry(_name))
for _name in ("alive", "atexit"):
    RULES.add(_MEMBERS[_name].fget, _of_registry(_name))
RULES.add(_MEMBERS["atexit"].fset, _of_registry("atexit"))
