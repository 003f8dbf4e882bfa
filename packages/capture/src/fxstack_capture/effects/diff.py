"""Compare mirrors with what they held at entry: the difference is the side effect."""

from __future__ import annotations

import collections
from typing import TYPE_CHECKING, Any

from fxstack_capture.effects.records import (
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
from fxstack_capture.objects.kinds.lazy_dict import ABSENT, UNREAD
from fxstack_capture.sources import pinned

if TYPE_CHECKING:
    from collections.abc import Iterator

    from fxstack_capture.objects.kinds.lazy_dict import LazyDict
    from fxstack_capture.objects.object_model import MirrorWorld
    from fxstack_capture.objects.registry import Entry
    from fxstack_capture.sources import Source


def diff(world: MirrorWorld) -> Effects:
    """All effects so far. Stand-ins are not changed: tracing may go on and ``diff`` be called
    again.
    """
    # First of all: an iterator does not see what its container becomes.
    records: list[Effect] = [Advance(*step) for step in world.iterators.advances()]
    for entry in list(world.registry.by_standin.values()):
        changes = _changes(world, entry)
        records += changes
        instance = world.instances.get(id(entry.standin))
        if changes or (instance is not None and instance.changed):
            world.distinctions.note_written(entry)
    records += _classes(world)
    records += _contexts(world)
    records += world.deferred
    return Effects(tuple(records))


def _changes(world: MirrorWorld, entry: Entry) -> list[Effect]:
    """Writes to one pre-existing object (an instance's dictionary is an entry of its own)."""
    key = id(entry.standin)
    records: list[Effect] = []
    held = world.contents.get(key)
    if held is not None:
        records += _container(entry.standin, held, entry.source)
    added = world.growing.added(entry.standin)
    if added:
        records.append(ListExtend(entry.source, added))
    state = world.dicts.get(key)
    if state is not None:
        records += _dictionary(state)
    records += world.contexts.changes(entry.standin, entry.source)
    known = world.slots.get(key)
    if known:
        records += _slots(entry.standin, known, entry.source)
    cell = world.cells.get(key)
    if cell is not None:
        records += _cell(cell)
    return records


def _dictionary(state: LazyDict) -> Iterator[Effect]:
    for key, value in state.changes():
        yield (
            DictDelete(state.source, key) if value is ABSENT else DictSet(state.source, key, value)
        )


def _container(standin: Any, held: tuple[Any, ...], source: Source) -> Iterator[Effect]:
    if isinstance(standin, list):
        yield from list_changes(held, list(list.__iter__(standin)), source)
    elif isinstance(standin, collections.deque):
        now = tuple(collections.deque.__iter__(standin))
        if not _same(now, held):
            yield DequeReplace(source, now)
    elif isinstance(standin, set):
        yield from _set_changes(standin, held, source)
    elif isinstance(standin, dict):
        yield from _dict_changes(standin, held, source)


def _same(a: tuple[Any, ...], b: tuple[Any, ...]) -> bool:
    return len(a) == len(b) and all(x is y for x, y in zip(a, b, strict=True))


def list_changes(held: tuple[Any, ...], now: list[Any], source: Source) -> Iterator[Effect]:
    """One slice assignment between the common prefix and the common suffix."""
    shorter = min(len(held), len(now))
    start = 0
    while start < shorter and held[start] is now[start]:
        start += 1
    tail = 0
    while tail < shorter - start and held[len(held) - 1 - tail] is now[len(now) - 1 - tail]:
        tail += 1
    if start < len(held) - tail or start < len(now) - tail:
        yield ListReplace(source, start, len(held) - tail, tuple(now[start : len(now) - tail]))


def _set_changes(standin: set[Any], held: tuple[Any, ...], source: Source) -> Iterator[Effect]:
    now = tuple(set.__iter__(standin))
    old = {id(m) for m in held}
    new = {id(m) for m in now}
    if old != new:
        removed = tuple(m for m in held if id(m) not in new)
        added = tuple(m for m in now if id(m) not in old)
        yield SetChange(source, removed, added)


def _dict_changes(
    standin: dict[Any, Any], held: tuple[Any, ...], source: Source
) -> Iterator[Effect]:
    """A dict subclass that entered whole: keep the longest prefix whose order is right, store the
    rest again.
    """
    now = (
        list(collections.OrderedDict.items(standin))
        if isinstance(standin, collections.OrderedDict)
        else list(dict.items(standin))
    )
    place = {id(key): index for index, (key, _) in enumerate(held)}
    old = {id(key): value for key, value in held}
    stay: set[int] = set()
    last = -1
    for key, _ in now:
        index = place.get(id(key), -1)
        if index <= last:
            break
        last = index
        stay.add(id(key))
    for key, _ in held:
        if id(key) not in stay:
            yield DictDelete(source, key)
    for key, value in now:
        if id(key) not in stay or old[id(key)] is not value:
            yield DictSet(source, key, value)


def _slots(standin: Any, known: dict[Any, Any], source: Source) -> Iterator[Effect]:
    for member, was in known.items():
        try:
            now = member.__get__(standin)
        except AttributeError:
            now = ABSENT
        if now is was:
            continue
        if now is ABSENT:
            yield SlotDelete(source, member.__objclass__, member.__name__)
        else:
            yield SlotSet(source, member.__objclass__, member.__name__, now)


def _cell(cell: Any) -> Iterator[Effect]:
    try:
        now = cell.standin.cell_contents
    except ValueError:
        if cell.lazy is not None:
            yield CellClear(cell.source)
        return
    if now is cell.lazy or (cell.loaded and now is cell.entered):
        return
    yield CellSet(cell.source, now)


def _contexts(world: MirrorWorld) -> Iterator[Effect]:
    """Writes to context variables that are not taken back."""
    for var, value in world.context.items():
        if value is not UNREAD:
            yield Call(pinned(var.set, f"{var.name}.set"), (value,), {})


def _classes(world: MirrorWorld) -> Iterator[Effect]:
    for cls, overlay in world.classes.overlays.items():
        target = pinned(cls, cls.__qualname__)
        for name, value in overlay.items():
            if value is ABSENT:
                if name in cls.__dict__:
                    yield ClassDelete(target, name)
            elif cls.__dict__.get(name, ABSENT) is not value:
                yield ClassSet(target, name, value)
