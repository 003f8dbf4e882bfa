"""Append-only lists: lists from outside that the program only appends to, measures, or reads by index.

An instruction that loads a list for one of these uses (``interpreter.handlers.deferred.append_only_lists``)
gets the proxy from this module. The proxy holds only the appended items. The guards cover only the length and
the items that the program has read. Every other use of the list calls ``Objects.enter``. It adds the original
items to the proxy and guards them.
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
"""Methods of lists that only append. They do not read the items."""


# --- sources of lists --------------------------------------------------------------------


def enter(objects: Objects, obj: object, source: Source) -> list[Any] | None:
    """Return the proxy of a list. The first read of a list wraps it without its items.

    Return None for other objects. The functions below call this function. It is also called for a bound
    ``append`` that a graph break left on the stack.
    """
    if type(obj) is not list:
        return None
    entry = objects.registry.by_original.get(id(obj))
    if entry is not None:
        wrapped: list[Any] = entry.proxy
        if id(wrapped) not in objects.append_only:
            result: list[Any] | None = objects.enter(obj, source)
            return result
        if entry.source != source:
            objects.trace.guard(source, SameObject(entry.source))
        return wrapped
    objects.trace.guard(source, TypeIs(list))
    proxy: list[Any] = []
    objects.registry.add(obj, proxy, source)
    objects.append_only[id(proxy)] = obj, source
    return proxy


def in_local(objects: Objects, value: object) -> list[Any] | None:
    """Return the proxy of a list that the program has not read yet.

    ``value`` is the content of a local variable or of a stack slot. Return None if it is not a deferred list.
    The instruction then loads the variable as usual.
    """
    return enter(objects, value.value, value.source) if type(value) is DeferredLocal else None


def in_cell(objects: Objects, cell: CellType) -> list[Any] | None:
    """Return the proxy of a list in a cell that the program has not read yet. Return None in any other case."""
    try:
        return in_local(objects, cell.cell_contents)
    except ValueError:
        return None


def in_globals(objects: Objects, namespace: dict[str, object], name: str) -> list[Any] | None:
    """Return the proxy of a list in the globals that the program has not read yet. Return None in any other
    case.
    """
    return _in_dict(objects, objects.namespace(namespace), name)


def in_attribute(objects: Objects, obj: object, name: str) -> list[Any] | None:
    """Return the proxy of a list in an instance attribute that has not been read yet. Return None in any
    other case.
    """
    state = objects.instances.get(id(obj))
    if state is None or not is_plain_attribute(objects, obj, name):
        return None
    return _in_dict(objects, state, name)


def _in_dict(objects: Objects, state: LazyDict, name: str) -> list[Any] | None:
    """Return the proxy of a list in a lazily read dictionary.

    Return None if the program has already read the key, or if the value is no list.
    """
    if not state.is_deferred(name):
        return None
    return enter(objects, state.original[name], state.item_source(name))


# --- reads -------------------------------------------------------------------------------


def length(objects: Objects, proxy: list[Any]) -> Any:
    """Return the length of an append-only list, for ``len``. The items are not read.

    A length that has changed between calls is a symbol.
    """
    original, source = objects.append_only[id(proxy)]
    before = objects.trace.torch.enter_number(len(original), Converted(source, _LENGTH))
    return before + len(proxy) if proxy else before


def item(objects: Objects, proxy: list[Any], key: object) -> Any:
    """Return one item of an append-only list, for ``list[key]``.

    If the item cannot be read on its own, expand the list and return NULL. The caller then indexes the full
    list.
    """
    original, source = objects.append_only[id(proxy)]
    count = len(original)
    if type(key) is torch.SymInt:
        return _item_at(objects, proxy, key)
    if type(key) is int and -len(proxy) <= key < 0:
        return proxy[key]
    if type(key) is not int or not -count <= key < count or (key < 0 and proxy):
        expand(objects, proxy)
        return NULL
    return objects.enter(original[key], Item(source, key))


def _item_at(objects: Objects, proxy: list[Any], key: torch.SymInt) -> Any:
    """Return the original item at a symbolic index, or NULL as in ``item``.

    The source of the item contains the source of the index.
    """
    original, source = objects.append_only[id(proxy)]
    index_source = objects.trace.torch.place_of(key)
    if index_source is None or (proxy and key < 0) or not -len(original) <= key.node.hint < len(original):
        expand(objects, proxy)
        return NULL
    return objects.enter(original[key.node.hint], ItemAt(source, index_source))


def expand(objects: Objects, proxy: list[Any]) -> None:
    """Insert the original items before the appended items, and guard them.

    Called before any use other than appending, measuring and indexing. A list that is not append-only is left
    unchanged.
    """
    entry = objects.append_only.pop(id(proxy), None)
    if entry is None:
        return
    original, source = entry
    originals = items(objects, original, original, source)
    proxy[:0] = originals
    objects.contents[id(proxy)] = tuple(originals)
