"""Caches that are freed together with the object whose results they hold.

ShapeEnv methods under ``functools.lru_cache`` store their environment in a process-wide cache, and with it
every object that the environment refers to. Most of these caches keep an environment for the next few hundred
calls of any environment. ``get_implications`` keeps it forever.
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any, TypeVar

Class = TypeVar("Class", bound=type)
_CACHED = type(functools.lru_cache(str.upper))
_MISSING = object()


def with_own_caches(cls: Class) -> Class:
    """Replace the process-wide caches of the base class by a cache in each instance of ``cls``.

    Instances have an attribute ``answers``, a dictionary.
    """
    for name, method in vars(cls.__mro__[1]).items():
        if isinstance(method, _CACHED) and name not in vars(cls):
            setattr(cls, name, _remembering(name, method.__wrapped__))
    return cls


def _remembering(name: str, compute: Callable[..., Any]) -> Callable[..., Any]:
    @functools.wraps(compute)
    def method(self: Any, *args: Any, **settings: Any) -> Any:
        key = name, args, tuple(settings.items())
        found = self.answers.get(key, _MISSING)
        if found is _MISSING:
            found = self.answers[key] = compute(self, *args, **settings)
        return found

    return method
