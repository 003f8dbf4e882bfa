"""A dictionary from outside that is read key by key.

The dictionary is a plain dictionary, an instance's ``__dict__`` or a module namespace. The proxy is a real
dictionary with the items that the program has read or written. A ``LazyDict`` is the state of the proxy. Its
``known`` has the original value of each key that was read, or ABSENT. The difference between the proxy and
``known`` is the side effect.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator
from types import FunctionType
from typing import Any, Final, Protocol

from fxstack_capture.breaks import graph_break
from fxstack_capture.guards.records import HasKey, IdentityIs, KeysAre, LengthIs
from fxstack_capture.sources import InstanceAttr, InstanceDict, Key, KeyAt, Source, ValueAt
from fxstack_capture.trace.constants import is_constant_key, is_value


class _Absent:
    """The class of ``ABSENT``. It gives the constant a readable ``repr``."""

    def __repr__(self) -> str:
        return "ABSENT"


ABSENT: Final[Any] = _Absent()
"""Stands for the value of a key, attribute or slot that does not exist. (None may be a value of the program.)"""
DEFERRED: Final[Any] = object()
"""Stands for the original value of a key that the program wrote before reading it."""


class Expanding(Protocol):
    """The methods of the object model that a lazy dictionary uses.

    This module cannot import the object model, because the tables of the object model contain lazy
    dictionaries.
    """

    @property
    def trace(self) -> Any: ...

    def enter(self, obj: object, source: Source) -> Any: ...

    def enter_from(self, obj: object, source: Source, stable: bool) -> Any: ...

    def note_expanded(self, state: LazyDict) -> None: ...


class LazyDict:
    """The state of a dictionary that is read lazily.

    The first read of a key adds a guard. Keys that are never read may change.
    """

    __slots__ = (
        "deleted",
        "expanded",
        "known",
        "objects",
        "original",
        "proxy",
        "source",
        "stable",
        "uniform",
    )

    def __init__(
        self,
        objects: Expanding,
        original: dict[Any, Any],
        proxy: dict[Any, Any],
        source: Source,
        *,
        stable: bool = False,
        uniform: bool | None = None,
    ) -> None:
        """``original`` is the real dictionary, ``source`` its source, and ``proxy`` the dictionary to fill.

        ``stable``: the dictionary is the namespace of a stable module, so its definitions get sources of
        their own. ``uniform``: all keys are simple (see ``simple``). None if this is not known yet.
        """
        self.objects = objects
        self.original = original
        self.proxy = proxy
        self.source = source
        self.stable = stable
        self.uniform = uniform
        self.known: dict[Any, Any] = {}
        """Maps each key that the program has read or overwritten to its original value.

        The value is the proxy of the original value, ABSENT or DEFERRED.
        """
        self.deleted: set[Any] = set()
        """Keys that the program has deleted. It may have stored some of them again, at the end of the
        dictionary.
        """
        self.expanded = False
        """Whether the proxy contains all items. Later reads then need no guards."""

    def item_source(self, key: object) -> Source:
        """Return the source of the value at ``key``.

        The caller adds the guards of the value. If the key cannot be found by value, its position is guarded
        here.
        """
        if type(self.source) is InstanceDict and type(key) is str:
            return InstanceAttr(self.source.of, key)
        return Key(self.source, key) if is_value(key) else self._source_at_index(key)

    def _source_at_index(self, key: object) -> Source:
        """Return the source of the value whose key is a class or function. Guard that the key stays at its
        position.
        """
        index = next(i for i, k in enumerate(self.original) if k is key)
        self.objects.trace.guard(KeyAt(self.source, index), IdentityIs(key, id(key)))
        return ValueAt(self.source, index)

    def simple(self, key: object) -> bool:
        """Whether ``key`` can be looked up on its own, because no key of another type can be equal to it.

        Operators and rules of dictionaries ask this before ``get``, ``put`` or ``remove``. If it is False,
        they call ``expand`` first.
        """
        if self.uniform is None:
            self.uniform = all(map(_is_simple, self.original))
        return self.uniform and _is_simple(key)

    def get(self, key: object) -> Any:
        """Return the current value of a simple key, or ABSENT.

        The first read of a key wraps and guards its value.
        """
        proxy = self.proxy
        if key in proxy:
            return proxy[key]
        if self.expanded or key in self.known:
            return ABSENT
        return self._fetch(key)

    def _fetch(self, key: object) -> Any:
        """Read a key for the first time: guard the key, and wrap its value. ABSENT for a missing key."""
        original = self.original
        if key not in original:
            # The code also depends on the absence of a key: a global that the program defines later hides a
            # builtin.
            self.objects.trace.guard(self.source, HasKey(key, present=False))
            self.known[key] = ABSENT
            return ABSENT
        value = self.objects.enter_from(original[key], self.item_source(key), self.stable)
        self.known[key] = value
        self.proxy[key] = value
        return value

    def is_deferred(self, key: str) -> bool:
        """Whether the original has ``key``, and the program has neither read nor written ``key``.

        ``append_only_lists`` asks this. It can then use the list at ``key`` without reading its items.
        """
        return not self.expanded and key not in self.proxy and key not in self.known and key in self.original

    def put(self, key: object, value: object) -> None:
        """Store a simple key in the proxy. The original value is not read, so it needs no guard."""
        self.proxy[key] = value

    def remove(self, key: object) -> bool:
        """Remove a simple key. Return False if the dictionary does not have the key."""
        if self.get(key) is ABSENT:
            return False
        if not self.expanded and key not in self.known:  # the program wrote the key without reading it
            present = key in self.original
            self.objects.trace.guard(self.source, HasKey(key, present=present))
            self.known[key] = DEFERRED if present else ABSENT
        del self.proxy[key]
        self.deleted.add(key)
        return True

    def length(self) -> int:
        """Return the number of items.

        If the program has not changed the keys, guard the number. Otherwise expand the dictionary.
        """
        if not self.expanded:
            # A key whose lookup failed stays in ``known`` as ABSENT, even if the program stores the key
            # later.
            present = {key for key, value in self.known.items() if value is not ABSENT}
            if self.proxy.keys() != present:
                # The number of items depends on which of the written keys were in the original.
                self.expand()
            else:
                self.objects.trace.guard(self.source, LengthIs(len(self.original)))
                return len(self.original)
        return len(self.proxy)

    def names(self) -> set[Any]:
        """Return the keys, for ``dir`` in the program. Guard the keys, but not their order. The values are
        not read.
        """
        if self.expanded:
            return set(self.proxy)
        self.objects.trace.guard(self.source, KeysAre(tuple(self.original), ordered=False))
        read_keys = {key for key, original in self.known.items() if original is not ABSENT}
        return {*(key for key in self.original if key not in read_keys), *self.proxy}

    def expand(self) -> None:
        """Fill the proxy with all items, in the order of the original.

        Called before C code reads the proxy or iterates over it. Raises GraphBreak for ``sys.modules``.
        """
        if self.expanded:
            return
        if self.original is sys.modules:  # tracing itself imports modules, which adds items
            raise graph_break("unsupported-object", "reading all items of sys.modules")
        keys = tuple(self.original)
        self.objects.trace.guard(self.source, KeysAre(keys) if keys else LengthIs(0))
        with self.objects.trace.calls.without_effects(keys):
            self._expand_all(keys)
        self.objects.note_expanded(self)

    def _expand_all(self, keys: tuple[Any, ...]) -> None:
        """Read all remaining items for ``expand``. Put all items into the order of the original."""
        self.expanded = True
        proxy, read_items = self.proxy, self.known
        full: dict[Any, Any] = {}
        self.known = {}  # it is filled again in the order of the original
        self._fill(keys, read_items, full)
        late = {k: v for k, v in proxy.items() if k not in full}
        proxy.clear()
        proxy.update(full)
        proxy.update(late)

    def _fill(self, keys: tuple[Any, ...], read_items: dict[Any, Any], full: dict[Any, Any]) -> None:
        """Put the items of the original into the dictionary ``full``, except those that the program has
        deleted.

        ``read_items`` is ``known`` before the expansion. ``keys`` are the keys of the original.
        """
        proxy = self.proxy
        values = tuple(self.original.values())
        for index, key in enumerate(keys):
            if not is_constant_key(key):
                self._expand_object(index, key, values[index], full)
            elif key in proxy and key not in self.deleted:
                full[key] = proxy[key]
                self.known[key] = read_items.get(key, DEFERRED)
            elif key not in read_items and key not in proxy:
                self._expand_one(index, key, full)
            else:
                self.known[key] = read_items.get(key, DEFERRED)

    def _expand_one(self, index: int, key: object, full: dict[Any, Any]) -> None:
        """Wrap the item at ``index`` of the original. The program has neither read nor written this item."""
        source = self.item_source(key) if is_value(key) else ValueAt(self.source, index)
        value = self.objects.enter_from(self.original[key], source, self.stable)
        self.known[key] = full[key] = value

    def _expand_object(self, index: int, key: object, original_value: object, full: dict[Any, Any]) -> None:
        """Wrap an item whose key is an object with a proxy. Store the item in ``known`` and ``full``.

        The interpreter runs the ``__hash__`` of the key, which may be the program's.
        """
        objects = self.objects
        proxy = objects.enter(key, KeyAt(self.source, index))
        value = objects.enter_from(original_value, ValueAt(self.source, index), self.stable)
        for table in (self.known, full):
            objects.trace.calls.watched(dict.__setitem__, table, proxy, value)

    def changes(self) -> Iterator[tuple[Any, Any]]:
        """Yield (key, new value) or (key, ABSENT) in the order in which the changes are applied to the
        original.

        ``effect_diff`` makes a side effect from each pair.
        """
        proxy, originals = self.proxy, self.known
        kept_keys = self._unmoved_keys()
        for key, original in originals.items():
            if original is not ABSENT and key not in kept_keys:
                yield key, ABSENT
        for key, value in proxy.items():
            if key not in kept_keys or originals.get(key, ABSENT) is not value:
                yield key, value

    def _unmoved_keys(self) -> set[Any]:
        """Return the keys of the original that keep their place. ``changes`` does not remove and store them."""
        proxy, originals = self.proxy, self.known
        if not self.expanded:
            deleted_keys = {
                k for k, original in originals.items() if original is not ABSENT and k not in proxy
            }
            return {k for k in proxy if k not in self.deleted} - deleted_keys
        order = {k: i for i, k in enumerate(k for k, original in originals.items() if original is not ABSENT)}
        kept_keys: set[Any] = set()
        last = -1
        for key in proxy:
            index = order.get(key, -1)
            if index <= last:
                # A key that was stored again is at the end. Keys after it must then be stored again as well.
                break
            last = index
            kept_keys.add(key)
        return kept_keys

    def has_changed(self, key: str) -> bool:
        """Whether the program has written to ``key``. Unlike ``get``, this adds no guard."""
        if key in self.proxy:
            return self.known.get(key, ABSENT) is not self.proxy[key]
        return self.known.get(key, ABSENT) is not ABSENT

    @property
    def changed(self) -> bool:
        """Whether the program has changed any item."""
        return next(self.changes(), None) is not None


def _is_simple(key: object) -> bool:
    """Whether the comparison and the hash of ``key`` are C code that reads only its value or identity."""
    cls = type(key)
    if cls is FunctionType or is_value(key):
        return True
    return issubclass(cls, type) and (cls.__eq__, cls.__hash__) == _OF_CLASSES


_OF_CLASSES = (type.__eq__, type.__hash__)
"""The comparison and the hash of classes, if the metaclass does not replace them."""
