"""Weak references to the objects of the program that guards name.

A tree lives as long as its entry, and keeps its guards for messages. These guards name classes, functions,
modules and dictionary keys. If the guards held them, deleting a model would not free its memory.
"""

from __future__ import annotations

import dataclasses
import weakref
from collections.abc import Hashable
from typing import Any

from fxstack_capture import sources
from fxstack_capture.guards.text import Described, short
from fxstack_capture.native.class_flags import is_heap_type
from fxstack_capture.sources import Source


class WeakReference(Described):
    """A weak reference to an object, with a text of the object for messages."""

    __slots__ = ("_reference",)

    def __init__(self, obj: object) -> None:
        self._reference = weakref.ref(obj)
        self.text = short(obj)

    def __repr__(self) -> str:
        return self.text

    @property
    def object(self) -> Any:
        """The object, or None if the object no longer exists."""
        return self._reference()


def referent_of(value: object) -> Any:
    """Return the object of a ``WeakReference``, or None if the object no longer exists. Any other value is
    returned as it is.
    """
    return value.object if isinstance(value, WeakReference) else value


def weak_form(value: object) -> Any:
    """Return a ``WeakReference`` to ``value``, or ``value`` itself if it supports no weak references.

    A class of C code is returned as it is, because it lives as long as the process.
    """
    if isinstance(value, WeakReference) or (isinstance(value, type) and not is_heap_type(value)):
        return value
    try:
        return WeakReference(value)
    except TypeError:
        return value


class WeakSources:
    """Rewrites the objects and sources in the guards of one tree to weak forms. Each source is rewritten
    once.
    """

    def __init__(self) -> None:
        self._sources: dict[Source, Source] = {}
        self.checks: dict[Hashable, Any] = {}
        """Check -> its weak form, for checks that many sources have in common."""

    def rewrite(self, value: object) -> Any:
        """Return the weak form of ``value``, a source or an object of the program."""
        return self.source(value) if isinstance(value, Source) else weak_form(value)

    def source(self, source: Source) -> Source:
        """Return the source with weak references in place of the objects that it holds."""
        result = self._sources.get(source)
        if result is None:
            result = self._sources[source] = self._rewrite(source)
        return result

    def _rewrite(self, source: Source) -> Source:
        """Return ``source`` with weak references to the objects that it holds. Without such objects, return
        ``source`` itself.
        """
        if isinstance(source, sources.Pinned):
            return dataclasses.replace(source, value=weak_form(source.value))
        if not isinstance(source, sources.Step):
            return source
        changes: dict[str, Any] = {"of": self.source(source.of)}
        if isinstance(source, sources.SlotAttr):
            changes["owner"] = weak_form(source.owner)
        if isinstance(source, sources.ItemAt):
            changes["at"] = self.source(source.at)
        if changes["of"] is source.of and len(changes) == 1:
            return source
        return dataclasses.replace(source, **changes)
