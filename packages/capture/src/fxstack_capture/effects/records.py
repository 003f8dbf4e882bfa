"""Frozen records of side effects.

Each says which pre-existing object (by its source) changes how. Every record is one *primitive*
write: replaying it runs no user code (``dict.__setitem__``, ``list.__setitem__`` of a slice,
``cell.cell_contents``...). Values and keys are objects of the trace: tensors and numbers of the
graph, proxies, or objects made during the trace.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, fields
from typing import Any

from fxstack_capture.sources import Source


@dataclass(frozen=True, slots=True)
class Effect:
    """A write to the object found at ``target``; ``target`` is evaluated as it was before any
    effect.
    """

    target: Source


@dataclass(frozen=True, slots=True)
class DictSet(Effect):
    """``target[key] = value`` by the C-level store of its builtin base class.

    ``target`` is a dict (or subclass), an instance's ``__dict__`` (an ``InstanceDict`` source), or
    a module's globals.
    """

    key: Any
    value: Any


@dataclass(frozen=True, slots=True)
class DictDelete(Effect):
    """``del target[key]``, as ``DictSet``."""

    key: Any


@dataclass(frozen=True, slots=True)
class ListReplace(Effect):
    """``target[start:stop] = items`` of a list or a subclass."""

    start: int
    stop: int
    items: tuple[Any, ...]


@dataclass(frozen=True, slots=True)
class Advance(Effect):
    """``count`` calls of ``next(target)``; one more than there are items leaves the iterator finished."""

    count: int


@dataclass(frozen=True, slots=True)
class ListExtend(Effect):
    """``target.extend(items)`` of a list, wherever it ends."""

    items: tuple[Any, ...]


@dataclass(frozen=True, slots=True)
class DequeReplace(Effect):
    """The whole content of a deque."""

    items: tuple[Any, ...]


@dataclass(frozen=True, slots=True)
class SetChange(Effect):
    """Members that leave and members that join a set."""

    removed: tuple[Any, ...]
    added: tuple[Any, ...]


@dataclass(frozen=True, slots=True)
class SlotSet(Effect):
    """``owner.__dict__[name].__set__(target, value)``: a ``__slots__`` member."""

    owner: type
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
    """``target(*args, **kwargs)`` for real, result dropped: a deferred log message, say."""

    args: tuple[Any, ...]
    kwargs: dict[str, Any]


@dataclass(frozen=True, slots=True)
class Effects:
    """All effects of one trace, in the order in which they are to be replayed."""

    records: tuple[Effect, ...]

    def __iter__(self) -> Iterator[Effect]:
        return iter(self.records)

    def __len__(self) -> int:
        return len(self.records)

    def values(self) -> tuple[Any, ...]:
        """Every object of the trace that the records hold (what a replay needs to be able to
        rebuild).
        """
        found: list[Any] = []
        for record in self.records:
            for field in _VALUE_FIELDS:
                if hasattr(record, field):
                    held = getattr(record, field)
                    found += held if field in _TUPLE_FIELDS else (held,)
        return tuple(found)

    def identity(self) -> tuple[Any, ...]:
        """What is written where: equal for the effects of a later moment if nothing was written in between.

        Values count by identity, which runs no code of theirs and tells ``1`` from ``True``. It holds for as long as these
        effects do.
        """
        return tuple(
            (type(record), *(_identity(name, getattr(record, name)) for name in _fields(record)))
            for record in self.records
        )


def _fields(record: Effect) -> tuple[str, ...]:
    return tuple(item.name for item in fields(record))


def _identity(name: str, held: Any) -> Any:
    if name in _TUPLE_FIELDS:
        return tuple(map(id, held))
    return id(held) if name in _HELD_FIELDS else held


_TUPLE_FIELDS = ("items", "removed", "added", "args")
_VALUE_FIELDS = ("key", "value", *_TUPLE_FIELDS)
_HELD_FIELDS = ("key", "value", "kwargs")
