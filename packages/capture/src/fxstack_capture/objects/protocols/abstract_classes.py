"""Subclass answers of abstract classes (``abc.ABC``).

Registering a class with an abstract class changes the answer. Each pair of an abstract class and a class from
outside has one guard.
"""

from __future__ import annotations

import abc
import types
from collections.abc import Iterator
from typing import Any

from fxstack_capture.guards.records import SubclassIs
from fxstack_capture.sources import pinned
from fxstack_capture.trace.state import Objects

_mro = type.__dict__["__mro__"].__get__


def _named(classes: object) -> Iterator[Any]:
    """Yield the classes in the second argument of ``isinstance``: a class, a union, or a tuple of these."""
    if isinstance(classes, (tuple, types.UnionType)):
        for part in classes if isinstance(classes, tuple) else classes.__args__:
            yield from _named(part)
    else:
        yield classes


def note_answers(objects: Objects, kind: type, classes: object) -> None:
    """Guard the answer of ``issubclass(kind, classes)`` for each abstract class in ``classes``.

    Guards cannot name a class made in the trace, so its pre-existing bases are guarded in its place.
    """
    for cls in _named(classes):
        if isinstance(cls, abc.ABCMeta) and not objects.is_new(cls):
            for known in _known(objects, kind):
                try:
                    answer = bool(abc.ABCMeta.__subclasscheck__(cls, known))
                except (
                    TypeError
                ):  # a protocol that refuses the check: the program's own check raises the same
                    continue
                check = SubclassIs(cls, id(cls), answer)
                objects.trace.guard(pinned(known, known.__qualname__), check)


def _known(objects: Objects, kind: type) -> tuple[type, ...]:
    if not objects.is_new(kind):
        return (kind,)
    return tuple(base for base in _mro(kind) if not objects.is_new(base))
