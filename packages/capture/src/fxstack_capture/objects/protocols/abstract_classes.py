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


def _classes_in(classes: object) -> Iterator[Any]:
    """Yield the classes in the second argument of ``isinstance``: a class, a union, or a tuple of these."""
    if isinstance(classes, (tuple, types.UnionType)):
        for part in classes if isinstance(classes, tuple) else classes.__args__:
            yield from _classes_in(part)
    else:
        yield classes


def note_answers(objects: Objects, kind: type, classes: object) -> None:
    """Guard the answer of ``issubclass(kind, classes)`` for each abstract class in ``classes``.

    Called when the program calls ``issubclass`` or ``isinstance``. Guards cannot name a class made in the trace;
    the guards on its pre-existing bases replace the guard on the class.
    """
    for cls in _classes_in(classes):
        if isinstance(cls, abc.ABCMeta) and not objects.is_new(cls):
            for base in _nameable_bases(objects, kind):
                try:
                    answer = bool(abc.ABCMeta.__subclasscheck__(cls, base))
                except TypeError:
                    # A protocol refuses the check. The check of the program raises the same error.
                    continue
                check = SubclassIs(cls, id(cls), answer)
                objects.trace.guard(pinned(base, base.__qualname__), check)


def _nameable_bases(objects: Objects, kind: type) -> tuple[type, ...]:
    """Return the classes that a guard can name in place of ``kind``: ``kind`` itself, or the pre-existing bases of
    a new class.
    """
    if not objects.is_new(kind):
        return (kind,)
    return tuple(base for base in _mro(kind) if not objects.is_new(base))
