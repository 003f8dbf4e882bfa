"""Follow a source from a real frame: the very access that guards and emitted code make, at compile time."""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from fxstack_capture import native, torch_compat
from fxstack_capture import sources as s
from fxstack_capture.emit import runtime
from fxstack_capture.guards.torch_state import function_mode_at
from fxstack_capture.torch_side.subclasses.suspended_modes import mode_at

if TYPE_CHECKING:
    from collections.abc import Callable
    from types import CellType, FunctionType

_Base = torch_compat.TensorBase


@dataclass(frozen=True, slots=True)
class RealFrame:
    """What a frame can see when it starts."""

    function: FunctionType
    arguments: dict[str, object]
    cells: dict[str, CellType]


def resolve(source: s.Source, frame: RealFrame) -> Any:
    """The object at ``source``."""
    steps = []
    while isinstance(source, s.Step):
        steps.append(source)
        source = source.of
    value = _ROOTS[type(source)](source, frame)
    for step in reversed(steps):
        if isinstance(step, s.ItemAt):
            value = item_reader(type(value)).__getitem__(value, resolve(step.at, frame))
            continue
        value = _STEPS[type(step)](step, value)
    return value


def item_reader(kind: type) -> Any:
    """The builtin class whose ``__getitem__`` reads an item of an instance of ``kind``."""
    for base in (list, tuple, deque):
        if issubclass(kind, base):
            return base
    raise TypeError(f"{kind} has no C-level items")


_ROOTS: dict[type, Callable[[Any, RealFrame], Any]] = {
    s.Local: lambda src, frame: frame.arguments[src.local],
    s.Free: lambda src, frame: frame.cells[src.local].cell_contents,
    s.FreeCell: lambda src, frame: frame.cells[src.local],
    s.Globals: lambda _, frame: frame.function.__globals__,
    s.Pinned: lambda src, _: src.value,
}

_STEPS: dict[type, Callable[[Any, Any], Any]] = {
    s.InstanceDict: lambda _, of: runtime.instance_dict(of, "__dict__"),
    s.InstanceAttr: lambda src, of: runtime.instance_dict(of, "__dict__")[src.attr],
    s.SlotAttr: lambda src, of: src.owner.__dict__[src.attr].__get__(of),
    s.BuiltinAttr: lambda src, of: getattr(of, src.attr),
    s.ClassAttr: lambda src, of: runtime.class_attr(of, src.attr),
    s.TypeOf: lambda _, of: type(of),
    s.Item: lambda src, of: item_reader(type(of)).__getitem__(of, src.index),
    s.Key: lambda src, of: dict.__getitem__(of, src.key),
    s.KeyAt: lambda src, of: runtime.key_at(of, src.index),
    s.ValueAt: lambda src, of: runtime.value_at(of, src.index),
    s.Upcoming: lambda src, of: native.upcoming(of, src.index),
    s.Converted: lambda src, of: mode_at(of) if src.by is function_mode_at else src.by(of),
    s.Cached: lambda src, of: native.cached(of, src.key),
    s.Cell: lambda _, of: of.cell_contents,
    s.Size: lambda src, of: _Base.size(of, src.dim),
    s.Stride: lambda src, of: _Base.stride(of, src.dim),
    s.StorageOffset: lambda _, of: _Base.storage_offset(of),
    s.Affine: lambda src, of: (of - src.offset) // src.scale,
}
