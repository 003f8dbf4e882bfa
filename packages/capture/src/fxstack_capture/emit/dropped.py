"""Objects from outside that a frame's side effects drop, and whose finalizer may then run.

The side effects happen after the graph, so what the finalizer does would come too late for the program's next read.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from fxstack_capture.effects.records import (
    CellClear,
    CellSet,
    DequeReplace,
    DictDelete,
    DictSet,
    Effect,
    Effects,
    ListReplace,
    SetChange,
    SlotDelete,
    SlotSet,
)
from fxstack_capture.emit.errors import CannotRebuildError
from fxstack_capture.emit.resolve import resolve
from fxstack_capture.guards.accesses import RealFrame
from fxstack_capture.objects.instances import finalizer_of


def refuse_finalizers(effects: Effects, frame: RealFrame) -> None:
    """Raise ``CannotRebuildError`` if the replay of ``effects`` may run a finalizer."""
    for record in effects.records:
        for value in _dropped(record, frame):
            found = finalizer_of(value)
            if found is not None:
                raise CannotRebuildError(f"a {found.__qualname__}, whose __del__ may run,")


def _dropped(record: Effect, frame: RealFrame) -> Iterable[Any]:
    """The values that the object has before the write, and may not have afterwards."""
    if isinstance(record, DictSet | DictDelete):
        items = resolve(record.target, frame)
        try:
            return (dict.__getitem__(items, record.key),)
        except (KeyError, TypeError):  # a new key, or a key that is made in the trace
            return ()
    if isinstance(record, ListReplace):
        return list.__getitem__(resolve(record.target, frame), slice(record.start, record.stop))
    if isinstance(record, SetChange):
        return record.removed
    if isinstance(record, DequeReplace):
        return tuple(resolve(record.target, frame))
    try:
        if isinstance(record, CellSet | CellClear):
            return (resolve(record.target, frame).cell_contents,)
        if isinstance(record, SlotSet | SlotDelete):
            return (record.owner.__dict__[record.name].__get__(resolve(record.target, frame)),)
    except (AttributeError, ValueError):  # nothing is bound yet
        pass
    return ()
