"""Caches that go with the object that they are about.

Methods of ShapeEnv under ``functools.lru_cache`` keep their environments, and with them what the program's tensors were, in
caches of the process: some for the next few hundred questions of whomever, ``get_implications`` for good.
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any, TypeVar

Class = TypeVar("Class", bound=type)
_CACHED = type(functools.lru_cache(str.upper))
_MISSING = object()


def with_own_caches(cls: Class) -> Class:
    """Give instances of ``cls`` caches of their own for what its base keeps in the process's.

    They have an attribute ``answers``, a dictionary.
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
