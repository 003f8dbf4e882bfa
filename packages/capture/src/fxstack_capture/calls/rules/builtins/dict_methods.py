"""Methods of ``dict`` on dictionaries from outside: read single keys without filling the lazy dictionary."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from fxstack_capture.callers import plainly
from fxstack_capture.calls.native_run import run
from fxstack_capture.calls.table import RuleTable
from fxstack_capture.trace.lazy_dict import ABSENT, LazyDict
from fxstack_capture.trace.state import Trace

RULES: RuleTable = RuleTable()


def _lazy_rule(method: Callable[..., Any], on_state: Callable[..., Any], *counts: int) -> None:
    """Register the rule of ``method``.

    With a lazy dictionary, a simple key and one of the argument counts, the rule calls ``on_state``.
    Otherwise the rule fills the dictionary and runs ``method`` for real.
    """

    def rule(trace: Trace, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        if args and not kwargs and len(args) in counts:
            state: LazyDict | None = trace.objects.lazy.get(id(args[0]))
            if state is not None and (len(args) == 1 or state.simple(args[1])):
                return on_state(state, *args[1:])
        if args:
            trace.objects.expand(args[0])
            if _plain_key(method, args):
                return plainly(method, args, kwargs)
        return run(trace, method, args, kwargs)

    RULES.add(method, rule)


def _plain_key(method: Callable[..., Any], args: tuple[Any, ...]) -> bool:
    # No code of the program hashes or compares ``str`` and ``int`` keys.
    return type(args[0]) is dict and (len(args) == 1 or type(args[1]) in (str, int))


def _get(state: LazyDict, key: object, default: object = None) -> Any:
    value = state.get(key)
    return default if value is ABSENT else value


def _getitem(state: LazyDict, key: object) -> Any:
    value = state.get(key)
    if value is ABSENT:
        raise KeyError(key)
    return value


def _contains(state: LazyDict, key: object) -> bool:
    return state.get(key) is not ABSENT


def _delitem(state: LazyDict, key: object) -> None:
    if not state.remove(key):
        raise KeyError(key)


def _setdefault(state: LazyDict, key: object, default: object = None) -> Any:
    value = state.get(key)
    if value is ABSENT:
        state.put(key, default)
        return default
    return value


def _pop(state: LazyDict, key: object, *default: object) -> Any:
    value = state.get(key)
    if value is ABSENT:
        if default:
            return default[0]
        raise KeyError(key)
    state.remove(key)
    return value


_lazy_rule(dict.get, _get, 2, 3)
_lazy_rule(dict.__getitem__, _getitem, 2)
_lazy_rule(dict.__contains__, _contains, 2)
_lazy_rule(dict.__setitem__, LazyDict.put, 3)
_lazy_rule(dict.__delitem__, _delitem, 2)
_lazy_rule(dict.setdefault, _setdefault, 2, 3)
_lazy_rule(dict.pop, _pop, 2, 3)
_lazy_rule(dict.__len__, LazyDict.length, 1)
