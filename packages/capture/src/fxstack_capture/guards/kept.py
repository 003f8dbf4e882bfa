"""Guards as an entry keeps them for messages: weak references replace the program's objects.

A tree lives as long as its entry. If the guards held the classes, functions, modules and dictionary keys that
they name, deleting a model would not free its memory.
"""

from __future__ import annotations

import dataclasses
import weakref
from collections.abc import Callable
from typing import Any

from fxstack_capture import sources
from fxstack_capture.guards import records
from fxstack_capture.guards.records import Check, Guard
from fxstack_capture.guards.text import short
from fxstack_capture.native.class_flags import is_heap_type
from fxstack_capture.sources import Source


class Weakly:
    """A weak reference to an object, and a text of the object for messages."""

    __slots__ = ("_reference", "text")

    def __init__(self, obj: object) -> None:
        self._reference = weakref.ref(obj)
        self.text = short(obj)

    def __repr__(self) -> str:
        return self.text

    @property
    def object(self) -> Any:
        """The object, or None if the object no longer exists."""
        return self._reference()


def held(value: object) -> Any:
    """Return the object of a ``Weakly``. Return any other value itself."""
    return value.object if isinstance(value, Weakly) else value


def _is_immortal(value: object) -> bool:
    return isinstance(value, type) and not is_heap_type(value)


def weakly(value: object) -> Any:
    """Return ``value`` in a weak reference if ``value`` supports weak references."""
    if isinstance(value, Weakly) or _is_immortal(value):
        return value
    try:
        return Weakly(value)
    except TypeError:
        return value


def _all_weakly(values: tuple[Any, ...]) -> tuple[Any, ...]:
    return tuple(value if value is records.NOT_FOUND else weakly(value) for value in values)


class Keeper:
    """Rewrite the guards of one tree. Each source is rewritten once."""

    def __init__(self) -> None:
        self._sources: dict[Source, Source] = {}

    def keep(self, guard: Guard) -> Guard:
        rule = _RULES.get(type(guard.check))
        check = rule(guard.check, self) if rule is not None else guard.check
        source = self.source(guard.source)
        if check is guard.check and source is guard.source:
            return guard
        return records.Guard(source, check, guard.stack)

    def source(self, source: Source) -> Source:
        kept = self._sources.get(source)
        if kept is None:
            kept = self._sources[source] = self._rewrite(source)
        return kept

    def _rewrite(self, source: Source) -> Source:
        if isinstance(source, sources.Pinned):
            return dataclasses.replace(source, value=weakly(source.value))
        if not isinstance(source, sources.Step):
            return source
        changes: dict[str, Any] = {"of": self.source(source.of)}
        if isinstance(source, sources.SlotAttr):
            changes["owner"] = weakly(source.owner)
        if isinstance(source, sources.ItemAt):
            changes["at"] = self.source(source.at)
        if changes["of"] is source.of and len(changes) == 1:
            return source
        return dataclasses.replace(source, **changes)

    def sources(self, many: tuple[Source, ...]) -> tuple[Source, ...]:
        return tuple(self.source(source) for source in many)


_RULES: dict[type, Callable[[Any, Keeper], Check]] = {
    records.TypeIs: lambda c, _k: records.TypeIs(weakly(c.cls)),
    records.IdentityIs: lambda c, _k: dataclasses.replace(c, obj=weakly(c.obj)),
    records.KeysAre: lambda c, _k: dataclasses.replace(c, keys=_all_weakly(c.keys)),
    records.ClassUnchanged: lambda c, _k: dataclasses.replace(
        c, values=_all_weakly(c.values), mro=_all_weakly(c.mro)
    ),
    records.SubclassIs: lambda c, _k: dataclasses.replace(c, cls=weakly(c.cls)),
    records.TensorIs: lambda c, _k: dataclasses.replace(c, cls=weakly(c.cls)),
    records.SlotUnset: lambda c, _k: dataclasses.replace(c, owner=weakly(c.owner)),
    records.SameObject: lambda c, k: records.SameObject(k.source(c.other)),
    records.AllDistinct: lambda c, k: records.AllDistinct(k.sources(c.others)),
    records.NoOverlap: lambda c, k: records.NoOverlap(k.sources(c.others)),
    records.SharesStorage: lambda c, k: records.SharesStorage(k.sources(c.others)),
    records.ShapeHolds: lambda c, k: dataclasses.replace(
        c, symbols=tuple((symbol, k.source(source)) for symbol, source in c.symbols)
    ),
}


def kept_guards(guards: tuple[Guard, ...]) -> tuple[Guard, ...]:
    """Return the same guards, which keep no object of the program alive that supports weak references."""
    keeper = Keeper()
    return tuple(keeper.keep(guard) for guard in guards)
