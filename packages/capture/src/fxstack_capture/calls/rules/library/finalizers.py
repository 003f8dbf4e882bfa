"""``weakref.finalize``: finalizers live in a registry of the process, which numbers them.

Finalizers observe when an object dies. Compiled code drops an object as early as possible; plain Python drops
a local variable when the function returns. If a frame creates a finalizer, the outermost function runs in
plain Python.
"""

from __future__ import annotations

import sys
import weakref
from typing import Any

from fxstack_capture.breaks import graph_break
from fxstack_capture.calls.rules.builtins.running_frames import caller
from fxstack_capture.calls.table import Rule, RuleTable
from fxstack_capture.trace.state import Trace

RULES: RuleTable = RuleTable()

_MEMBERS = vars(weakref.finalize)


@RULES.rule(_MEMBERS["__init__"])
def _make(trace: Trace, _args: tuple[Any, ...], _kwargs: dict[str, Any]) -> None:
    reason = graph_break("side-effect-call", "weakref.finalize")
    reason.whole = caller(trace.interp.current_frame(), sys.maxsize)
    raise reason


def _of_registry(name: str) -> Rule:
    def rule(_trace: Trace, _args: tuple[Any, ...], _kwargs: dict[str, Any]) -> Any:
        raise graph_break("side-effect-call", f"weakref.finalize.{name}")

    return rule


for _name in ("__call__", "detach", "peek"):
    RULES.add(_MEMBERS[_name], _of_registry(_name))
for _name in ("alive", "atexit"):
    RULES.add(_MEMBERS[_name].fget, _of_registry(_name))
RULES.add(_MEMBERS["atexit"].fset, _of_registry("atexit"))
