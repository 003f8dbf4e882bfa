"""Guards on ``issubclass`` answers of abstract classes (``abc.ABC``).

Registering a class with an abstract class may change the answer. Each pair of an abstract class and a class
from outside has one guard.
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

    Called when the program calls ``issubclass`` or ``isinstance``. No guard can name a class that was made in
    the trace. For such a class, its bases from outside are guarded instead.
    """
    for cls in _classes_in(classes):
        if isinstance(cls, abc.ABCMeta) and not objects.is_new(cls):
            for base in _nameable_bases(objects, kind):
                try:
                    answer = bool(abc.ABCMeta.__subclasscheck__(cls, base))
                except TypeError:
                    # The ``__subclasscheck__`` of a protocol may raise. The program's own call raises the
                    # same error.
                    continue
                check = SubclassIs(cls, id(cls), answer)
                objects.trace.guard(pinned(base, base.__qualname__), check)


def _nameable_bases(objects: Objects, kind: type) -> tuple[type, ...]:
    """Return the classes that a guard names for ``kind``.

    A class from outside is named itself. A class made in the trace is represented by its bases from outside.
    """
    if not objects.is_new(kind):
        return (kind,)
    return tuple(base for base in _mro(kind) if not objects.is_new(base))
