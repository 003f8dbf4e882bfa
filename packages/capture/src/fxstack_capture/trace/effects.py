"""Frozen records of side effects.

A record names a pre-existing object by its source and describes one write to the object. The write is
*primitive*: replaying the write runs no code of the program (``dict.__setitem__``, ``list.__setitem__`` of a
slice, ``cell.cell_contents``...). Values and keys are objects of the trace: tensors and numbers of the graph,
proxies, or objects made during the trace.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, fields
from typing import Any

from fxstack_capture.sources import Source


@dataclass(frozen=True, slots=True)
class Effect:
    """A write to the object at source ``target``.

    The replacement code evaluates the targets of all effects before it replays any effect.
    """

    target: Source


@dataclass(frozen=True, slots=True)
class DictSet(Effect):
    """``target[key] = value`` by the C-level store of the builtin base class.

    ``target`` is a dict (or subclass), an instance's ``__dict__`` (an ``InstanceDict`` source), or a module's
    globals.
    """

    key: Any
    value: Any


@dataclass(frozen=True, slots=True)
class DictDelete(Effect):
    """``del target[key]``. ``target`` is as in ``DictSet``."""

    key: Any


@dataclass(frozen=True, slots=True)
class ListReplace(Effect):
    """``target[start:stop] = items`` of a list or an instance of a subclass.

    ``start`` and ``stop`` are positions in the list before the write.
    """

    start: int
    stop: int
    items: tuple[Any, ...]


@dataclass(frozen=True, slots=True)
class Advance(Effect):
    """``count`` calls of ``next(target)``, where ``target`` is a partially consumed iterator.

    A ``count`` of one more than the number of remaining items leaves the iterator exhausted.
    """

    count: int


@dataclass(frozen=True, slots=True)
class ListExtend(Effect):
    """``target.extend(items)`` of a list whose items the trace has not read (``ObjectTables.append_only``)."""

    items: tuple[Any, ...]


@dataclass(frozen=True, slots=True)
class DequeReplace(Effect):
    """Replace the whole content of a deque by ``items``."""

    items: tuple[Any, ...]


@dataclass(frozen=True, slots=True)
class SetChange(Effect):
    """Remove the members ``removed`` from a set and add the members ``added``."""

    removed: tuple[Any, ...]
    added: tuple[Any, ...]


@dataclass(frozen=True, slots=True)
class SlotSet(Effect):
    """``owner.__dict__[name].__set__(target, value)``: a ``__slots__`` member."""

    owner: type
    """The class whose ``__slots__`` has the member."""
    name: str
    value: Any


@dataclass(frozen=True, slots=True)
class SlotDelete(Effect):
    """``owner.__dict__[name].__delete__(target)``."""

    owner: type
    name: str


@dataclass(frozen=True, slots=True)
class CellSet(Effect):
    """``target.cell_contents = value``."""

    value: Any


@dataclass(frozen=True, slots=True)
class CellClear(Effect):
    """``del target.cell_contents``."""


@dataclass(frozen=True, slots=True)
class ClassSet(Effect):
    """``type.__setattr__(target, name, value)``."""

    name: str
    value: Any


@dataclass(frozen=True, slots=True)
class ClassDelete(Effect):
    """``type.__delattr__(target, name)``."""

    name: str


@dataclass(frozen=True, slots=True)
class Call(Effect):
    """A real call ``target(*args, **kwargs)`` whose result is dropped, for example a deferred log message.

    ``target`` is the source of the callable.
    """

    args: tuple[Any, ...]
    kwargs: dict[str, Any]


@dataclass(frozen=True, slots=True)
class Effects:
    """All side effects of one trace, in the order of replay. ``diff`` returns them."""

    records: tuple[Effect, ...]

    def __iter__(self) -> Iterator[Effect]:
        return iter(self.records)

    def __len__(self) -> int:
        return len(self.records)

    def values(self) -> tuple[Any, ...]:
        """Return every object of the trace that the records hold: the objects that the replacement code must
        rebuild.
        """
        held_objects: list[Any] = []
        for record in self.records:
            for field in _VALUE_FIELDS:
                if hasattr(record, field):
                    value = getattr(record, field)
                    held_objects += value if field in _TUPLE_FIELDS else (value,)
        return tuple(held_objects)

    def identity(self) -> tuple[Any, ...]:
        """Return a key of the writes.

        Two equal keys mean that the program wrote nothing in between. Values are compared by identity, since
        identity runs no code of the values and distinguishes ``1`` from ``True``. The key is valid as long as this
        ``Effects`` object exists.
        """
        return tuple(
            (type(record), *(_identity(name, getattr(record, name)) for name in _fields(record)))
            for record in self.records
        )


def _fields(record: Effect) -> tuple[str, ...]:
    """Return the names of the fields of a record."""
    return tuple(item.name for item in fields(record))


def _identity(name: str, value: Any) -> Any:
    """Return the part of ``Effects.identity`` for the field ``name`` of a record.

    Objects of the trace are compared by id, other fields by value.
    """
    if name in _TUPLE_FIELDS:
        return tuple(map(id, value))
    return id(value) if name in _OBJECT_FIELDS else value


_TUPLE_FIELDS = ("items", "removed", "added", "args")
"""Fields that hold a tuple of objects of the trace."""
_VALUE_FIELDS = ("key", "value", *_TUPLE_FIELDS)
"""Fields whose objects the replacement code rebuilds."""
_OBJECT_FIELDS = ("key", "value", "kwargs")
"""Fields that hold one object of the trace, or the dictionary of keyword arguments."""
