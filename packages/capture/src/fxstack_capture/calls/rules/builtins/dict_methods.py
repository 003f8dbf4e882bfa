"""Methods of ``dict`` on dictionaries from outside: they read single keys without filling the lazy
dictionary.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, Final

from fxstack_capture.callers import plainly
from fxstack_capture.calls.native_run import run
from fxstack_capture.calls.rules import RULES
from fxstack_capture.trace.lazy_dict import ABSENT, LazyDict
from fxstack_capture.trace.state import Args, Kwargs, Trace


def _on_dict(trace: Trace, fn: Callable[..., Any], args: Args, kwargs: Kwargs) -> Any:
    """Apply the method to the lazy dictionary, if the dictionary and the key allow it.

    Otherwise fill the dictionary and run the method for real.
    """
    on_state, *counts = _ON_STATE[fn]
    if args and not kwargs and len(args) in counts:
        state: LazyDict | None = trace.objects.lazy.get(id(args[0]))
        if state is not None and (len(args) == 1 or state.simple(args[1])):
            return on_state(state, *args[1:])
    if args:
        trace.objects.expand(args[0])
        # The hash and comparison of ``str`` and ``int`` keys run no code of the program.
        if type(args[0]) is dict and (len(args) == 1 or type(args[1]) in (str, int)):
            return plainly(fn, args, kwargs)
    return run(trace, fn, args, kwargs)


def _get(state: LazyDict, key: object, default: object = None) -> Any:
    """Read a key, or return the default."""
    value = state.get(key)
    return default if value is ABSENT else value


def _getitem(state: LazyDict, key: object) -> Any:
    """Read a key, or raise KeyError."""
    value = state.get(key)
    if value is ABSENT:
        raise KeyError(key)
    return value


def _contains(state: LazyDict, key: object) -> bool:
    """Whether the dictionary has the key."""
    return state.get(key) is not ABSENT


def _delitem(state: LazyDict, key: object) -> None:
    """Remove a key, or raise KeyError."""
    if not state.remove(key):
        raise KeyError(key)


def _setdefault(state: LazyDict, key: object, default: object = None) -> Any:
    """Read a key. If the key is missing, store the default before."""
    value = state.get(key)
    if value is ABSENT:
        state.put(key, default)
        return default
    return value


def _pop(state: LazyDict, key: object, *default: object) -> Any:
    """Remove a key and return its value, or the default."""
    value = state.get(key)
    if value is ABSENT:
        if default:
            return default[0]
        raise KeyError(key)
    state.remove(key)
    return value


_ON_STATE: Final[Mapping[Any, tuple[Any, ...]]] = {
    dict.get: (_get, 2, 3),
    dict.__getitem__: (_getitem, 2),
    dict.__contains__: (_contains, 2),
    dict.__setitem__: (LazyDict.put, 3),
    dict.__delitem__: (_delitem, 2),
    dict.setdefault: (_setdefault, 2, 3),
    dict.pop: (_pop, 2, 3),
    dict.__len__: (LazyDict.length, 1),
}
"""Maps a method to the function on a ``LazyDict``, and to the numbers of arguments that this function takes."""
RULES.add(_on_dict, *_ON_STATE)
