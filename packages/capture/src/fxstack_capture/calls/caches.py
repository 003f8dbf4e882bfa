"""``functools.lru_cache``: what is cached is taken from the cache, what is not is traced (and not
cached).

Cached functions are pure by intent: whether an entry is still there on a later call is not guarded.
The exception are functions such as a logger's ``warning_once``, whose only point is the cache:
those are called for real when the graph has run.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from fxstack_capture import native
from fxstack_capture.calls.native_run import passthrough, run
from fxstack_capture.calls.rules.logging_calls import defer, is_log_once
from fxstack_capture.world.constants import is_constant_key

if TYPE_CHECKING:
    from fxstack_capture.calls.dispatch import CallDispatcher

_MISS = object()


class _MissError(BaseException):
    """The cache asked the function."""


def call_cached(
    calls: CallDispatcher, fn: Any, args: tuple[Any, ...], kwargs: dict[str, Any]
) -> Any:
    world = calls.world
    if not world.is_preexisting(fn):
        return run(calls.trace, fn, args, kwargs)
    value = _cached(calls, fn, args, kwargs)
    if value is not _MISS:
        return value
    if is_log_once(fn, args):
        return defer(calls.trace, fn, args, kwargs)
    return calls.call(world.load_attr(fn, "__wrapped__"), args, kwargs)


def _cached(calls: CallDispatcher, fn: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    """The value in the cache, if it and all arguments mean the same outside of the trace."""
    world = calls.world
    if not native.AVAILABLE or not all(
        world.is_preexisting(value) or is_constant_key(value) for value in (*args, *kwargs.values())
    ):
        return _MISS
    world.remade.pin((*args, *kwargs.values()))
    originals = tuple(world.original_of(value) for value in args)
    keywords = {name: world.original_of(value) for name, value in kwargs.items()}
    try:
        value = native.intercept(_miss, fn, originals, keywords, passthrough())
    except _MissError:
        return _MISS
    return value if is_constant_key(value) else _MISS


def _miss(fn: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    raise _MissError
