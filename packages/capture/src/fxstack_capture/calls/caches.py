"""``functools.lru_cache``: a result that is in the cache is that very object, guarded to be there; calls are counted as ever.

A result that is not there is traced. Is it a constant, or something from outside, and has the function changed nothing, then the
real call is made when the graph has run: it fills the cache, and counts. Else the frame runs in plain Python for as long as the
cache does not hold the result: what is cached is an object of its own, whose making may be noticed. A function that misses
again and again (or raises: exceptions are not cached) ends the graph.

Keys with tensors, symbolic numbers, objects made in the trace, or objects that hash by Python code are not known: such calls are
traced and not cached.
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
from fxstack_capture.calls.rules.library.logging_calls import defer, is_log_once
from fxstack_capture.effects.records import Call
from fxstack_capture.guards.records import Guard, IdentityIs
from fxstack_capture.objects.cache_keys import is_typed, key_of, keyword_mark
from fxstack_capture.objects.constants import IMMUTABLE_TYPES, is_constant_key
from fxstack_capture.sources import Cached, pinned
from fxstack_capture.torch_side.higher_order.surroundings import Surroundings
from fxstack_capture.trace.state import Calls, Trace
from fxstack_interchange.format.symbols import SYMBOLIC

# Limits: a call whose key has tensors, symbolic numbers, objects made in the same graph, or objects that hash
# by Python code is traced each time and not cached. A first call that caches a tensor or another new object,
# or has side effects, runs its frame in plain Python, also under fullgraph; the next call is compiled.


@dataclass(frozen=True, slots=True)
class _Entry:
    """The call ``fn(*args, **kwargs)``, and where ``fn`` keeps its result."""

    fn: Any
    args: tuple[Any, ...]
    kwargs: dict[str, Any]
    source: Cached

    @property
    def missing(self) -> Guard:
        """Holds for as long as the cache does not hold the result."""
        return Guard(self.source, IdentityIs(native.NOT_CACHED, id(native.NOT_CACHED)))


def call_cached(calls: Calls, fn: Callable[..., Any], args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    if not calls.objects.is_preexisting(fn):
        return run(calls.trace, fn, args, kwargs)
    if is_log_once(fn, args):
        return defer(calls.trace, fn, args, kwargs)
    entry = _entry(calls, fn, args, kwargs)
    if entry is None:
        _hash(calls, (*args, *kwargs.values()))
        return calls.call(calls.objects.load_attr(fn, "__wrapped__"), args, kwargs)
    found = native.cached(fn, entry.source.key)
    if found is native.NOT_CACHED:
        return _missed(calls, entry)
    value = calls.objects.enter(found, entry.source)
    _call_later(calls, entry)
    return value


def _hash(calls: Calls, values: tuple[Any, ...]) -> None:
    """The cache does so first, which runs a ``__hash__`` of the program's, or raises; no size need be known for that."""
    for value in values:
        if type(value) in (tuple, torch.Size):
            _hash(calls, tuple(value))
        elif not isinstance(value, (torch.Tensor, *SYMBOLIC)):
            calls.call(hash, (value,), {})


def _call_later(calls: Calls, entry: _Entry) -> None:
    """The real call, which counts the hit and makes the result the one that was used last, or fills the cache."""
    target = pinned(entry.fn, entry.fn.__qualname__)
    calls.objects.deferred.append(Call(target, entry.args, entry.kwargs))


def _missed(calls: Calls, entry: _Entry) -> Any:
    before, storages = Surroundings(calls.trace), set(calls.trace.torch.mutated_storages)
    try:
        function = calls.objects.load_attr(entry.fn, "__wrapped__")
        value = calls.call(function, entry.args, entry.kwargs)
    except GraphBreak as reason:
        if reason.until is not None or reason.error is not None or reason.is_error:
            raise
        raise _postponed(calls.trace, entry) from reason
    if not _is_lasting(calls, value):
        raise _postponed(calls.trace, entry)
    if before.have_changed() or calls.trace.torch.mutated_storages != storages:
        raise _postponed(calls.trace, entry)
    _call_later(calls, entry)
    return value


def _postponed(trace: Trace, entry: _Entry) -> GraphBreak:
    name = entry.fn.__qualname__
    ending = graph_break("side-effect-call", f"{name}, whose cache does not hold the result,")
    if trace.may_defer:
        ending.until = entry.missing
    return ending


def _entry(
    calls: Calls, fn: Callable[..., Any], args: tuple[Any, ...], kwargs: dict[str, Any]
) -> _Entry | None:
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
    key = objects.cache_keys.setdefault((id(fn), key), key)
    shown = ", ".join([*map(_short, originals), *(f"{n}={_short(v)}" for n, v in keywords.items())])
    return _Entry(fn, args, kwargs, Cached(pinned(fn, fn.__qualname__), key, shown, id(key)))


def _is_known(calls: Calls, value: object) -> bool:
    """Whether it means the same outside of the trace, and no Python code runs where it is hashed or compared."""
    if not calls.objects.is_preexisting(value):
        return _is_lasting(calls, value)
    if isinstance(value, torch.Tensor):
        return False
    cls = type(calls.objects.original_of(value))
    return all(type(getattr(cls, name)) is WrapperDescriptorType for name in ("__hash__", "__eq__"))


def _pin(calls: Calls, value: object) -> None:
    """A key has objects from outside in it: other objects at their places make other keys."""
    parts: tuple[object, ...] = ()
    if type(value) in (tuple, frozenset):
        parts = tuple(value)  # type: ignore[arg-type]
    elif type(value) is MethodType:  # equals others of the same function and object
        parts = (value.__func__, value.__self__)
    elif not is_constant_key(value):
        source = calls.objects.source_of(value)
        original = calls.objects.original_of(value)
        if source is not None:
            calls.trace.guard(source, IdentityIs(original, id(original)))
    for part in parts:
        _pin(calls, part)


def _is_lasting(calls: Calls, value: object) -> bool:
    """Whether it is from outside, or equal to any other that is made in its place."""
    if calls.objects.is_preexisting(value) or type(value) in IMMUTABLE_TYPES:
        return True
    if type(value) in (tuple, frozenset):
        return all(_is_lasting(calls, item) for item in value)  # type: ignore[attr-defined]
    return is_constant_key(value) and not calls.objects.is_new(value) and type(value) is not FunctionType


def _short(value: object) -> str:
    return repr(value) if is_constant_key(value) else f"<{type(value).__name__}>"
