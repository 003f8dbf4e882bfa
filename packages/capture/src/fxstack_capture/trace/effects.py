"""Frozen records of side effects.

A record describes one write to an object from outside, and names the object by its source. The write is
*primitive*: its replay runs no code of the program (``dict.__setitem__``, ``list.__setitem__`` of a slice,
``cell.cell_contents``...). Values and keys are objects of the trace: tensors and numbers of the graph,
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
    """``target[key] = value``, by the C method of the builtin base class.

    ``target`` is a dict, an instance of a subclass, an instance's ``__dict__`` (an ``InstanceDict`` source),
    or the globals of a module.
    """

    key: Any
    value: Any


@dataclass(frozen=True, slots=True)
class DictDelete(Effect):
    """``del target[key]``. ``target`` is the same as for ``DictSet``."""

    key: Any


@dataclass(frozen=True, slots=True)
class ListReplace(Effect):
    """``target[start:stop] = items``. ``target`` is a list or an instance of a subclass.

    ``start`` and ``stop`` are positions in the list before the write.
    """

    start: int
    stop: int
    items: tuple[Any, ...]


@dataclass(frozen=True, slots=True)
class Advance(Effect):
    """``count`` calls of ``next(target)``. ``target`` is a partially consumed iterator.

    If ``count`` is one more than the number of remaining items, the iterator is exhausted afterwards.
    """

    count: int


@dataclass(frozen=True, slots=True)
class ListExtend(Effect):
    """``target.extend(items)``. The trace has not read the items of the list (``ObjectTables.append_only``)."""

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
    """The class that declares the slot."""
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
    """A real call ``target(*args, **kwargs)``, for example of a deferred log message. Its result is dropped.

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
        """Return all objects of the trace in the records. The replacement code must rebuild them."""
        held_objects: list[Any] = []
        for record in self.records:
            for field in _VALUE_FIELDS:
                if hasattr(record, field):
                    value = getattr(record, field)
                    held_objects += value if field in _TUPLE_FIELDS else (value,)
        return tuple(held_objects)

    def identity(self) -> tuple[Any, ...]:
        """Return a key for the writes so far.

        If two keys are equal, the program wrote nothing between the two calls. Values are compared by
        identity: this runs no code of the values and distinguishes ``1`` from ``True``. The key is valid as
        long as this ``Effects`` object exists.
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

    Objects of the trace are compared by id, all other fields by value.
    """
    if name in _TUPLE_FIELDS:
        return tuple(map(id, value))
    return id(value) if name in _OBJECT_FIELDS else value


_TUPLE_FIELDS = ("items", "removed", "added", "args")
"""Fields that contain a tuple of objects of the trace."""
_VALUE_FIELDS = ("key", "value", *_TUPLE_FIELDS)
"""Fields whose objects the replacement code has to rebuild."""
_OBJECT_FIELDS = ("key", "value", "kwargs")
"""Fields that contain one object of the trace, or the dictionary of keyword arguments."""
