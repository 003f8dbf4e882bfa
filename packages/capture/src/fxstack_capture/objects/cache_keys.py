"""Keys of the dictionary in which ``functools.lru_cache`` holds its results."""

from __future__ import annotations

import functools
import gc
from typing import Any

from fxstack_capture import native


def key_of(args: tuple[Any, ...], kwargs: dict[str, Any], *, typed: bool) -> Any:
    """Return the key under which ``functools.lru_cache`` stores the result of a call.

    The key is made as ``lru_cache_make_key`` in CPython's Modules/_functoolsmodule.c makes it. With the key,
    the rule of cached functions finds a result in the real cache without running the function.
    """
    if not typed and not kwargs:
        return args[0] if len(args) == 1 and type(args[0]) in (int, str) else args
    key = args
    if kwargs:
        key += keyword_mark()
        for item in kwargs.items():
            key += item
    if typed:
        key += tuple(map(type, (*args, *kwargs.values())))
    return key


def is_typed(fn: Any) -> bool | None:
    """Return the ``typed`` option of ``fn``, a function of ``functools.lru_cache``.

    ``key_of`` needs the option: a typed cache distinguishes ``f(1)`` from ``f(1.0)``. Return None if ``fn``
    is no such function, or if its cache has size 0.
    """
    parameters = fn.__dict__.get("cache_parameters")
    code = getattr(parameters, "__code__", None)
    if code is None or code.co_filename != functools.lru_cache.__code__.co_filename:
        return None
    settings = parameters()
    return None if settings["maxsize"] == 0 else bool(settings["typed"])


@functools.cache
def keyword_mark() -> tuple[Any, ...]:
    """Return a tuple with the object that separates positional from keyword arguments in a key.

    The object is private to CPython. Return () if the native code does not know the memory layout of the
    caches; then no cache is read.
    """
    if not native.AVAILABLE:
        return ()
    limited, unlimited = functools.lru_cache(2)(_Result), functools.lru_cache(None)(_Result)
    result = limited(key=0)
    unlimited(key=0)
    links, results = _dict_of(limited), _dict_of(unlimited)
    if links is None or results is None:
        return ()
    if not native.use_caches(limited, links, result, unlimited, results):
        return ()
    key = next(iter(links))
    key_parts = key if type(key) is tuple and len(key) == 3 else ()
    understood = native.cached(limited, key) is result and native.cached(unlimited, 0) is native.NOT_CACHED
    return key_parts[:1] if understood else ()


class _Result:
    """The probe function of ``keyword_mark``. Each result is a new object, which is found in the cache by its
    identity.
    """

    def __init__(self, key: int) -> None:
        self.key = key


def _dict_of(wrapper: object) -> dict[Any, Any] | None:
    """Return the dictionary in which ``wrapper``, a function of ``lru_cache``, holds its results.

    Return None unless exactly one dictionary is a candidate.
    """
    dictionaries = [d for d in gc.get_referents(wrapper) if type(d) is dict and d is not wrapper.__dict__]
    return dictionaries[0] if len(dictionaries) == 1 else None
