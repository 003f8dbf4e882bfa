"""Follows a source in Python, as the native tree does in C: for messages, not for checks."""

from __future__ import annotations

import itertools
from collections import deque
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from fxstack_capture import native, sources
from fxstack_capture.guards.kept import held

if TYPE_CHECKING:
    from collections.abc import Callable
    from types import FunctionType

    from fxstack_capture.sources import Source

MISSING: Any = object()
"""What ``read`` returns for a value that is not there."""


@dataclass(frozen=True, slots=True)
class Frame:
    """What the sources of a frame start from."""

    func: FunctionType
    local_values: dict[str, object]

    def cell(self, name: str) -> Any:
        return (self.func.__closure__ or ())[self.func.__code__.co_freevars.index(name)]


def _class_attr(cls: type, name: str) -> Any:
    return next((c.__dict__[name] for c in cls.__mro__ if name in c.__dict__), MISSING)


def _item(value: Any, index: int) -> Any:
    base = next(c for c in (list, tuple, deque) if isinstance(value, c))
    return base.__getitem__(value, index)


_ROOTS: dict[type, Callable[[Any, Frame], Any]] = {
    sources.Local: lambda s, f: f.local_values[s.local],
    sources.Free: lambda s, f: f.cell(s.local).cell_contents,
    sources.FreeCell: lambda s, f: f.cell(s.local),
    sources.Globals: lambda _s, f: f.func.__globals__,
    sources.Pinned: lambda s, _f: held(s.value),
}

_STEPS: dict[type, Callable[[Any, Any], Any]] = {
    sources.InstanceDict: lambda _s, v: object.__getattribute__(v, "__dict__"),
    sources.InstanceAttr: lambda s, v: object.__getattribute__(v, "__dict__")[s.attr],
    sources.SlotAttr: lambda s, v: held(s.owner).__dict__[s.attr].__get__(v),
    sources.BuiltinAttr: lambda s, v: getattr(v, s.attr),
    sources.ClassAttr: lambda s, v: _class_attr(v, s.attr),
    sources.TypeOf: lambda _s, v: type(v),
    sources.Item: lambda s, v: _item(v, s.index),
    sources.Key: lambda s, v: dict.__getitem__(v, s.key),
    sources.KeyAt: lambda s, v: next(itertools.islice(iter(v), s.index, None)),
    sources.ValueAt: lambda s, v: next(itertools.islice(dict.values(v), s.index, None)),
    sources.Upcoming: lambda s, v: native.upcoming(v, s.index),
    sources.Cached: lambda s, v: native.cached(v, s.key),
    sources.Converted: lambda s, v: s.by(v),
    sources.Cell: lambda _s, v: v.cell_contents,
    sources.Size: lambda s, v: v.size(s.dim),
    sources.Stride: lambda s, v: v.stride(s.dim),
    sources.StorageOffset: lambda _s, v: v.storage_offset(),
    sources.Affine: lambda s, v: (v - s.offset) // s.scale,
}


def read(source: Source, frame: Frame) -> Any:
    """The value at a source, or ``MISSING``."""
    try:
        base = source.base
        if base is None:
            return _ROOTS[type(source)](source, frame)
        value = read(base, frame)
        if isinstance(source, sources.ItemAt):
            at = read(source.at, frame)
            return MISSING if value is MISSING or at is MISSING else _item(value, at)
        return MISSING if value is MISSING else _STEPS[type(source)](source, value)
    except Exception:
        return MISSING
