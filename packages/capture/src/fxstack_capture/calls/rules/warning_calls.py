"""Warnings while tracing: ignored ones vanish, others end the graph so that they appear once, in order."""

from __future__ import annotations

import _warnings
import warnings
from typing import TYPE_CHECKING, Any

from fxstack_capture.breaks import graph_break
from fxstack_capture.calls.table import RuleTable
from fxstack_capture.effects.records import Call
from fxstack_capture.sources import pinned

if TYPE_CHECKING:
    from fxstack_capture.trace import Trace

RULES: RuleTable = RuleTable()


@RULES.rule(warnings.warn)
def _warn(trace: Trace, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
    message = args[0] if args else kwargs.get("message")
    category = args[1] if len(args) > 1 else kwargs.get("category")
    if isinstance(message, Warning):
        category = type(message)
    if not _ignored(trace, str(message), category or UserWarning):
        raise graph_break("side-effect-call", "warnings.warn")


def _ignored(trace: Trace, text: str, category: Any) -> bool:
    """Whether the first filter that applies says so; filters of modules and lines are not decided here."""
    filters = trace.world.load_attr(warnings, "filters")
    for action, message, kind, module, line in filters:
        if not issubclass(category, kind) or (message is not None and not message.match(text)):
            continue
        if action != "ignore" and (module is not None or line):
            return False
        if module is None and not line:
            return bool(action == "ignore")
    return False


@RULES.rule(_warnings._filters_mutated)  # type: ignore[attr-defined]
def _filters_mutated(trace: Trace, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
    """A counter that makes caches of warnings stale: counted once, when the frame is left."""
    fn = _warnings._filters_mutated  # type: ignore[attr-defined]
    deferred: list[Any] = trace.world.deferred  # type: ignore[attr-defined]
    if not any(isinstance(e, Call) and e.target.name == "_filters_mutated" for e in deferred):
        deferred.append(Call(pinned(fn, "_filters_mutated"), (), {}))
