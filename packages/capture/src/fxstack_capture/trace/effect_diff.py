"""The side effects of a trace: the difference between the proxies and their original contents."""

from __future__ import annotations

import collections
from collections.abc import Iterator
from typing import Any

from fxstack_capture.sources import Source, pinned
from fxstack_capture.trace.effects import (
    Advance,
    Call,
    CellClear,
    CellSet,
    ClassDelete,
    ClassSet,
    DequeReplace,
    DictDelete,
    DictSet,
    Effect,
    Effects,
    ListExtend,
    ListReplace,
    SetChange,
    SlotDelete,
    SlotSet,
)
from fxstack_capture.trace.lazy_dict import ABSENT, DEFERRED, LazyDict
from fxstack_capture.trace.registry import Entry
from fxstack_capture.trace.state import Objects


def diff(objects: Objects) -> Effects:
    """Return all side effects so far, in the order of replay.

    ``FrameWriter.finish`` calls this when the trace ends. Rules call it to find out whether the program has
    changed anything yet. The call changes no proxy.
    """
    # Iterators advance before any other effect, so that they do not see the new contents of their containers.
    # An iterator that reads other iterators comes first, because the others do not count the items that it
    # takes.
    consumed = sorted(objects.iterators.values(), key=lambda iterator: not iterator.counts_for_others)
    records: list[Effect] = [Advance(it.source, it.steps()) for it in consumed if it.steps()]
    for entry in list(objects.registry.by_proxy.values()):
        changes = _changes(objects, entry)
        records += changes
        instance = objects.instances.get(id(entry.proxy))
        # The graph replays a write by one name of the object. In later calls, another name must not mean the
        # same object.
        if changes or (instance is not None and instance.changed):
            objects.distinctions.note_written(entry)
    records += _classes(objects)
    records += _contexts(objects)
    records += objects.deferred
    return Effects(tuple(records))


def _changes(objects: Objects, entry: Entry) -> list[Effect]:
    """Return the writes to one object from outside. ``diff`` calls this for each entry of the registry.

    The dictionary of an instance has an entry of its own.
    """
    key = id(entry.proxy)
    records: list[Effect] = []
    items_when_wrapped = objects.contents.get(key)
    if items_when_wrapped is not None:
        records += _container(entry.proxy, items_when_wrapped, entry.source)
    if key in objects.append_only and entry.proxy:
        records.append(ListExtend(entry.source, tuple(entry.proxy)))
    state = objects.dicts.get(key)
    if state is not None:
        records += _dictionary(state)
    for raw, value in objects.contexts.get(key, {}).items():
        records.append(SlotSet(entry.source, raw.__objclass__, raw.__name__, value))
    slot_contents = objects.slots.get(key)
    if slot_contents:
        records += _slots(entry.proxy, slot_contents, entry.source)
    cell = objects.cells.get(key)
    if cell is not None:
        records += _cell(cell)
    return records


def _dictionary(state: LazyDict) -> Iterator[Effect]:
    """Yield the writes to a lazily read dictionary."""
    for key, value in state.changes():
        yield (DictDelete(state.source, key) if value is ABSENT else DictSet(state.source, key, value))


def _container(proxy: object, originals: tuple[Any, ...], source: Source) -> Iterator[Effect]:
    """Yield the writes to a container. ``originals`` are its items when it was wrapped."""
    if isinstance(proxy, list):
        yield from list_changes(originals, list(list.__iter__(proxy)), source)
    elif isinstance(proxy, collections.deque):
        items = tuple(collections.deque.__iter__(proxy))
        if not _are_identical(items, originals):
            yield DequeReplace(source, items)
    elif isinstance(proxy, set):
        yield from _set_changes(proxy, originals, source)
    elif isinstance(proxy, dict):
        yield from _dict_changes(proxy, originals, source)


def _are_identical(a: tuple[Any, ...], b: tuple[Any, ...]) -> bool:
    """Whether two tuples contain the same objects. No ``__eq__`` of the program may run."""
    return len(a) == len(b) and all(x is y for x, y in zip(a, b, strict=True))


def list_changes(originals: tuple[Any, ...], items: list[Any], source: Source) -> Iterator[Effect]:
    """Yield one slice assignment, for the items between the common prefix and the common suffix.

    Yield nothing if the items are the same. ``originals`` are the items when the list was wrapped. ``items``
    are the current items.
    """
    shorter = min(len(originals), len(items))
    start = 0
    while start < shorter and originals[start] is items[start]:
        start += 1
    tail = 0
    while tail < shorter - start and originals[len(originals) - 1 - tail] is items[len(items) - 1 - tail]:
        tail += 1
    if start < len(originals) - tail or start < len(items) - tail:
        yield ListReplace(source, start, len(originals) - tail, tuple(items[start : len(items) - tail]))


def _set_changes(proxy: set[Any], originals: tuple[Any, ...], source: Source) -> Iterator[Effect]:
    """Yield one record of the removed and the added members. Yield nothing if the members are the same."""
    members = tuple(set.__iter__(proxy))
    old = {id(m) for m in originals}
    new = {id(m) for m in members}
    if old != new:
        removed = tuple(m for m in originals if id(m) not in new)
        added = tuple(m for m in members if id(m) not in old)
        yield SetChange(source, removed, added)


def _dict_changes(proxy: dict[Any, Any], originals: tuple[Any, ...], source: Source) -> Iterator[Effect]:
    """Yield the writes to an instance of a dict subclass whose items were wrapped at once.

    The longest prefix with the right order stays. All items after the prefix are stored again, which gives
    the real dictionary the right order.
    """
    items = (
        list(collections.OrderedDict.items(proxy))
        if isinstance(proxy, collections.OrderedDict)
        else list(dict.items(proxy))
    )
    index_of = {id(key): index for index, (key, _) in enumerate(originals)}
    old = {id(key): value for key, value in originals}
    kept_keys: set[int] = set()
    last = -1
    for key, _ in items:
        index = index_of.get(id(key), -1)
        if index <= last:
            break
        last = index
        kept_keys.add(id(key))
    for key, _ in originals:
        if id(key) not in kept_keys:
            yield DictDelete(source, key)
    for key, value in items:
        if id(key) not in kept_keys or old[id(key)] is not value:
            yield DictSet(source, key, value)


def _slots(proxy: object, contents_at_read: dict[Any, Any], source: Source) -> Iterator[Effect]:
    """Yield the writes to the ``__slots__`` members that the program has read or written.

    ``contents_at_read`` maps a slot descriptor to the first content of the slot: a value, ABSENT, or a marker
    if the program wrote the slot before reading it.
    """
    for member, original in contents_at_read.items():
        try:
            content = member.__get__(proxy)
        except AttributeError:
            content = ABSENT
        if content is original:
            continue
        if content is ABSENT:
            yield SlotDelete(source, member.__objclass__, member.__name__)
        else:
            yield SlotSet(source, member.__objclass__, member.__name__, content)


def _cell(cell: Any) -> Iterator[Effect]:
    """Yield the write to a cell of the program (a ``ProxiedCell``). Yield nothing if the cell was only read."""
    try:
        content = cell.proxy.cell_contents
    except ValueError:
        if cell.lazy is not None:
            yield CellClear(cell.source)
        return
    if content is cell.lazy or (cell.loaded and content is cell.entered):
        return
    yield CellSet(cell.source, content)


def _contexts(objects: Objects) -> Iterator[Effect]:
    """Yield the writes to context variables from outside. Writes that the program has reset are omitted."""
    for var, value in objects.context.items():
        if value is not DEFERRED and objects.source_of(var) is not None:
            yield Call(pinned(var.set, f"{var.name}.set"), (value,), {})


def _classes(objects: Objects) -> Iterator[Effect]:
    """Yield the writes to classes from outside (``ClassReads.overlays``)."""
    for cls, overlay in objects.classes.overlays.items():
        target = pinned(cls, cls.__qualname__)
        for name, value in overlay.items():
            if value is ABSENT:
                if name in cls.__dict__:
                    yield ClassDelete(target, name)
            elif cls.__dict__.get(name, ABSENT) is not value:
                yield ClassSet(target, name, value)
