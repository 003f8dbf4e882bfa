"""Calls of ``functools.lru_cache`` functions.

On a hit, the result is the cached object. A guard checks that the cache still holds that object. The
replacement code makes the real call, so that the hit is counted.

On a miss, the wrapped function is traced. If the function has no side effects, and the result is a constant
or an object from outside, the replacement code makes the real call after the graph has run. The real call
fills the cache and counts the miss. In any other case, the frame runs in plain Python as long as the cache
does not hold the result. This is necessary because the program may observe the identity of the cached object,
and tracing would create another object. A function that misses again and again breaks the graph. A function
that raises also breaks the graph, because the cache does not store exceptions.

A call is traced and not cached if its key contains tensors, symbolic numbers, objects made in the trace, or
objects that Python code hashes.
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from dataclasses import dataclass
from types import FunctionType, MethodType, WrapperDescriptorType
from typing import Any

import torch

from fxstack_capture import native
from fxstack_capture.breaks import GraphBreak, graph_break
from fxstack_capture.calls.native_run import run
from fxstack_capture.calls.rules import RULES
from fxstack_capture.calls.rules.library.logging_calls import defer, is_log_once
from fxstack_capture.guards.records import Guard, IdentityIs
from fxstack_capture.objects.cache_keys import is_typed, key_of, keyword_mark
from fxstack_capture.sources import Cached, pinned
from fxstack_capture.torch_side.higher_order.surroundings import Surroundings
from fxstack_capture.trace.constants import IMMUTABLE_TYPES, is_constant_key
from fxstack_capture.trace.effects import Call
from fxstack_capture.trace.state import Args, Calls, Kwargs, Trace
from fxstack_interchange.format.symbols import SYMBOLIC

# Limits: a call is traced each time and not cached if its key has tensors, symbolic numbers, objects made in
# the same graph, or objects that hash by Python code. A first call that caches a tensor or another new
# object, or that has side effects, runs its frame in plain Python, even under fullgraph. The next call is
# compiled.


_Wrapper: Any = functools._lru_cache_wrapper


@RULES.rule(_Wrapper.cache_info, _Wrapper.cache_clear)
def _read_statistics(_trace: Trace, _fn: object, args: Args, _kwargs: Kwargs) -> Any:
    """Break the graph. The counts must include the real calls, and these run only after the graph."""
    raise graph_break("side-effect-call", f"the cache of {args[0].__qualname__}")


@dataclass(frozen=True, slots=True)
class _Entry:
    """A call ``fn(*args, **kwargs)``, and the source of its result in the cache of ``fn``."""

    fn: Any
    """The ``functools.lru_cache`` wrapper."""
    args: Args
    """The positional arguments, as objects of the trace."""
    kwargs: Kwargs
    """The keyword arguments, as objects of the trace."""
    source: Cached
    """The place of the result in the cache."""

    @property
    def missing(self) -> Guard:
        """The guard for the missing result. It holds as long as the cache does not hold the result."""
        return Guard(self.source, IdentityIs(native.NOT_CACHED, id(native.NOT_CACHED)))


@RULES.instances(_Wrapper)
def _call_cached(trace: Trace, fn: Callable[..., Any], args: Args, kwargs: Kwargs) -> Any:
    """Read the cache, or trace the function."""
    calls = trace.calls
    if not calls.objects.is_preexisting(fn):
        return run(trace, fn, args, kwargs)
    if is_log_once(fn, args):
        return defer(trace, fn, args, kwargs)
    entry = _entry(calls, fn, args, kwargs)
    # The key is unknown, so trace the wrapped function.
    if entry is None:
        _hash(calls, (*args, *kwargs.values()))
        return calls.call(calls.objects.load_attr(fn, "__wrapped__"), args, kwargs)
    result = native.cached(fn, entry.source.key)
    if result is native.NOT_CACHED:
        return _missed(calls, entry)
    value = calls.objects.enter(result, entry.source)
    _call_later(calls, entry)
    return value


def _hash(calls: Calls, values: tuple[Any, ...]) -> None:
    """Hash the arguments of a call that is not cached. The real cache hashes them before it calls the
    function.

    This runs ``__hash__`` methods of the program, or raises TypeError. Tensors and symbolic numbers are
    skipped, so that no size is specialised.
    """
    for value in values:
        if type(value) in (tuple, torch.Size):
            _hash(calls, tuple(value))
        elif not isinstance(value, (torch.Tensor, *SYMBOLIC)):
            calls.call(hash, (value,), {})


def _call_later(calls: Calls, entry: _Entry) -> None:
    """Record the real call as a side effect.

    The real call either counts a hit and marks the result as most recently used, or fills the cache.
    """
    target = pinned(entry.fn, entry.fn.__qualname__)
    calls.objects.deferred.append(Call(target, entry.args, entry.kwargs))


def _missed(calls: Calls, entry: _Entry) -> Any:
    """Trace the wrapped function after a miss. If the result allows it, the replacement code fills the cache."""
    before, storages = Surroundings(calls.trace), set(calls.trace.torch.mutated_storages)
    try:
        function = calls.objects.load_attr(entry.fn, "__wrapped__")
        value = calls.call(function, entry.args, entry.kwargs)
    except GraphBreak as reason:
        if reason.until is not None or reason.error is not None:
            raise
        raise _deferral(calls.trace, entry) from reason
    if not _is_lasting(calls, value):
        raise _deferral(calls.trace, entry)
    if before.have_changed() or calls.trace.torch.mutated_storages != storages:
        raise _deferral(calls.trace, entry)
    _call_later(calls, entry)
    return value


def _deferral(trace: Trace, entry: _Entry) -> GraphBreak:
    """Return the graph break for a miss whose result cannot be cached after the graph.

    If the frame may be deferred, it runs in plain Python until the cache holds the result.
    """
    name = entry.fn.__qualname__
    reason_to_end = graph_break("side-effect-call", f"{name}, whose cache does not hold the result,")
    if trace.may_defer:
        reason_to_end.until = entry.missing
    return reason_to_end


def _entry(calls: Calls, fn: Callable[..., Any], args: Args, kwargs: Kwargs) -> _Entry | None:
    """Return the call with the place of its result in the cache. None if the key of the call is unknown."""
    if not keyword_mark() or not all(map(functools.partial(_is_known, calls), (*args, *kwargs.values()))):
        return None
    typed = is_typed(fn)
    if typed is None:
        return None
    objects: Any = calls.objects
    objects.recreated.pin((*args, *kwargs.values()))
    _pin(calls, (*args, *kwargs.values()))
    originals = tuple(map(objects.original_of, args))
    keywords = {name: objects.original_of(value) for name, value in kwargs.items()}
    key = key_of(originals, keywords, typed=typed)
    # Equal keys must be one object, because the source contains the id of the key.
    key = objects.cache_keys.setdefault((id(fn), key), key)
    shown = ", ".join([*map(_short, originals), *(f"{n}={_short(v)}" for n, v in keywords.items())])
    return _Entry(fn, args, kwargs, Cached(pinned(fn, fn.__qualname__), key, shown, id(key)))


def _is_known(calls: Calls, value: object) -> bool:
    """Whether a cache key may contain ``value``.

    The value must mean the same object outside of the trace. Only C code may hash and compare it.
    """
    if not calls.objects.is_preexisting(value):
        return _is_lasting(calls, value)
    if isinstance(value, torch.Tensor):
        return False
    cls = type(calls.objects.original_of(value))
    return all(type(getattr(cls, name)) is WrapperDescriptorType for name in ("__hash__", "__eq__"))


def _pin(calls: Calls, value: object) -> None:
    """Guard the identity of objects from outside in a cache key. Other objects would make another key."""
    parts: tuple[object, ...] = ()
    if type(value) in (tuple, frozenset):
        parts = tuple(value)  # type: ignore[arg-type]
    elif type(value) is MethodType:  # bound methods are equal if their functions and objects are equal
        parts = (value.__func__, value.__self__)
    elif not is_constant_key(value):
        source = calls.objects.source_of(value)
        original = calls.objects.original_of(value)
        if source is not None:
            calls.trace.guard(source, IdentityIs(original, id(original)))
    for part in parts:
        _pin(calls, part)


def _is_lasting(calls: Calls, value: object) -> bool:
    """Whether a cache may hold ``value``. It is an object from outside, or a constant that any equal constant
    can replace.
    """
    if calls.objects.is_preexisting(value) or type(value) in IMMUTABLE_TYPES:
        return True
    if type(value) in (tuple, frozenset):
        return all(_is_lasting(calls, item) for item in value)  # type: ignore[attr-defined]
    return is_constant_key(value) and not calls.objects.is_new(value) and type(value) is not FunctionType


def _short(value: object) -> str:
    """Return a key as text for the name of a source."""
    return repr(value) if is_constant_key(value) else f"<{type(value).__name__}>"
