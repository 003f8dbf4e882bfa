"""Append-only lists: lists from outside that the program only appends to, measures, or reads by index.

An instruction that loads a list for one of these uses (``interpreter.handlers.deferred.append_only_lists``)
asks this module for the list. The proxy then holds only the appended items, and the guards cover only the
items and the length that the program read. Every other use of the list calls ``Objects.enter``, which adds
the original items to the proxy and guards them.
"""

from __future__ import annotations

from types import CellType
from typing import Any, Final

import torch

from fxstack_capture.bytecode.null import NULL
from fxstack_capture.guards.records import SameObject, TypeIs
from fxstack_capture.objects.kinds.containers import items
from fxstack_capture.objects.protocols.loads import is_plain_attribute
from fxstack_capture.sources import Converted, Item, ItemAt, Source
from fxstack_capture.trace.lazy_dict import LazyDict
from fxstack_capture.trace.records import DeferredLocal
from fxstack_capture.trace.state import Objects

_LENGTH: Any = len
APPEND_METHODS: Final = frozenset({"append", "extend"})
"""Methods of lists that do not read the items."""


class AppendOnlyLists:
    """The append-only lists of one trace, by the id of the proxy."""

    def __init__(self, objects: Objects) -> None:
        self._objects = objects
        self._deferred: dict[int, tuple[list[Any], Source]] = {}

    def __contains__(self, proxy: object) -> bool:
        return id(proxy) in self._deferred

    # --- sources of lists --------------------------------------------------------------------

    def enter(self, obj: object, source: Source) -> list[Any] | None:
        """Return the proxy of a list, without reading the items if the list is new.

        Return None for other objects.
        """
        if type(obj) is not list:
            return None
        objects = self._objects
        entry = objects.registry.by_original.get(id(obj))
        if entry is not None:
            known: list[Any] = entry.proxy
            if known not in self:
                result: list[Any] | None = objects.enter(obj, source)
                return result
            if entry.source != source:
                objects.trace.guard(source, SameObject(entry.source))
            return known
        objects.trace.guard(source, TypeIs(list))
        proxy: list[Any] = []
        objects.registry.add(obj, proxy, source)
        self._deferred[id(proxy)] = obj, source
        return proxy

    def lazily(self, value: object) -> list[Any] | None:
        """Wrap the list of a deferred local. Return None if the value is not a list or not deferred."""
        return self.enter(value.value, value.source) if type(value) is DeferredLocal else None

    def in_cell(self, cell: CellType) -> list[Any] | None:
        try:
            return self.lazily(cell.cell_contents)
        except ValueError:
            return None

    def in_globals(self, namespace: dict[str, object], name: str) -> list[Any] | None:
        return self._in_dict(self._objects.namespace(namespace), name)

    def in_attribute(self, obj: object, name: str) -> list[Any] | None:
        state = self._objects.instances.get(id(obj))
        if state is None or not is_plain_attribute(self._objects, obj, name):
            return None
        return self._in_dict(state, name)

    def _in_dict(self, state: LazyDict, name: str) -> list[Any] | None:
        if not state.is_deferred(name):
            return None
        return self.enter(state.original[name], state.item_source(name))

    # --- reads -------------------------------------------------------------------------------

    def length(self, proxy: list[Any]) -> Any:
        """Return the length. A length that has changed between calls is a symbol."""
        original, source = self._deferred[id(proxy)]
        before = self._objects.trace.torch.enter_number(len(original), Converted(source, _LENGTH))
        return before + len(proxy) if proxy else before

    def item(self, proxy: list[Any], key: object) -> Any:
        """Read one item. If one item cannot be read alone, expand the list and return NULL."""
        original, source = self._deferred[id(proxy)]
        count = len(original)
        if type(key) is torch.SymInt:
            return self._item_at(proxy, key)
        if type(key) is int and -len(proxy) <= key < 0:
            return proxy[key]
        if type(key) is not int or not -count <= key < count or (key < 0 and proxy):
            self.expand(proxy)
            return NULL
        return self._objects.enter(original[key], Item(source, key))

    def _item_at(self, proxy: list[Any], key: torch.SymInt) -> Any:
        """Read the original item at a symbolic index.

        The source of the item contains the source of the index.
        """
        original, source = self._deferred[id(proxy)]
        at = self._objects.trace.torch.place_of(key)
        if at is None or (proxy and key < 0) or not -len(original) <= key.node.hint < len(original):
            self.expand(proxy)
            return NULL
        return self._objects.enter(original[key.node.hint], ItemAt(source, at))

    def expand(self, proxy: list[Any]) -> None:
        """Insert the original items before the appended items."""
        found = self._deferred.pop(id(proxy), None)
        if found is None:
            return
        original, source = found
        held = items(self._objects, original, original, source)
        proxy[:0] = held
        self._objects.contents[id(proxy)] = tuple(held)

    def added(self, proxy: Any) -> tuple[Any, ...]:
        """Return the items that the program has appended to an append-only list."""
        return tuple(proxy) if id(proxy) in self._deferred else ()
