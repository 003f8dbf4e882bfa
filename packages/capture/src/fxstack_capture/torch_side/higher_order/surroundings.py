"""Detect whether a function that is called while tracing has effects besides its results.

If a function runs more or less often than it is traced, the function must not change objects that other code
can see.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from types import CellType, FunctionType, MethodType
from typing import Any

import torch

from fxstack_capture.numpy_side.scalar import Scalar
from fxstack_capture.objects.instances import slots
from fxstack_capture.torch_side.global_state import state
from fxstack_capture.trace.effect_diff import diff
from fxstack_capture.trace.effects import Call, Effect, Effects
from fxstack_capture.trace.state import Trace
from fxstack_interchange.format.symbols import SYMBOLIC

_MAX_OBJECTS = 10_000


@dataclass(frozen=True, slots=True)
class _Snapshot:
    """Counts and modes of a trace. Two snapshots are equal if no write, draw or state change lies between them."""

    # ``effects`` keeps the objects alive whose ids are in ``written``.

    effects: Effects = field(compare=False)
    written: tuple[Any, ...]
    """The identity of the side effects so far (``Effects.identity``)."""
    draws: int
    """Number of random draws of the trace so far."""
    attributes: int
    """Number of attribute writes to tensors."""
    modes: tuple[Any, ...]
    """Torch's global state (``state.present``)."""


class Surroundings:
    """A snapshot of outside objects, generators, attributes of tensors and torch's state.

    The snapshot includes the contents of the objects that the trace has made and that ``roots`` reach.
    """

    def __init__(self, trace: Trace, *roots: object) -> None:
        self._trace = trace
        self._roots = roots
        self._snapshot = _snapshot(trace)
        self._held = self._reachable()

    def have_changed(self) -> bool:
        """Return whether the code that ran since the snapshot has changed any part of it."""
        # An object that ``roots`` no longer reach was found to be an outside object. ``_snapshot`` covers effects
        # on outside objects.
        if _snapshot(self._trace) != self._snapshot:
            return True
        after = self._reachable()
        return any(after.get(key, parts) != parts for key, parts in self._held.items())

    def change(self) -> str:
        """Return in words what the code since the snapshot has changed, for messages."""
        now, before = _snapshot(self._trace), self._snapshot
        records = zip(now.written, now.effects, strict=True)
        changes = [_in_words(effect) for key, effect in records if key not in before.written]
        if changes:
            return ", and ".join(dict.fromkeys(changes))
        if now.draws != before.draws:
            return "draws random numbers"
        if now.attributes != before.attributes:
            return "sets an attribute of a tensor"
        if now.modes != before.modes:
            return "changes a mode of torch"
        return "changes an object that the compiled function has made before"

    def _reachable(self) -> dict[int, tuple[int, ...]]:
        """Return, by id of each object of the trace that the roots reach, the ids of the objects that it holds."""
        return dict(_reachable(self._roots, self._trace.objects.is_preexisting))


def _in_words(effect: Effect) -> str:
    """Return what an effect does, as the end of a sentence about a function."""
    if isinstance(effect, Call):
        return f"calls {effect.target.name}"
    key = getattr(effect, "key", getattr(effect, "name", None))
    return f"changes {effect.target.name}" + (f", entry {key!r}" if type(key) is str else "")


def _snapshot(trace: Trace) -> _Snapshot:
    """Take a snapshot of the side effects, draws, attribute writes and torch state of the trace."""
    objects = trace.objects
    effects = diff(objects)
    torch_side = trace.torch
    attributes = sum(torch_side.construction_of(w.tensor) is None for w in torch_side.attribute_writes)
    draws = len(objects.draws.made)
    return _Snapshot(effects, effects.identity(), draws, attributes, tuple(state.present()))


def _reachable(
    roots: tuple[Any, ...], is_preexisting: Callable[[object], bool]
) -> Iterator[tuple[int, tuple[int, ...]]]:
    """Yield the id of each object made in the trace, and the ids of the objects that the object holds."""
    seen: set[int] = set()
    work = deque(roots)
    while work and len(seen) < _MAX_OBJECTS:
        value = work.popleft()
        if id(value) in seen or is_preexisting(value):
            continue
        seen.add(id(value))
        parts = _parts(value)
        if parts is not None:
            yield id(value), tuple(map(id, parts))
            work.extend(parts)


def _parts(value: Any) -> list[Any] | None:
    """Return the objects that an object holds, without running code of its class; None for a leaf."""
    # ``None`` stands for a leaf. ``_snapshot`` covers changes of classes and tensors.
    cls = type(value)
    if issubclass(cls, (type, torch.Tensor, Scalar, *SYMBOLIC)):
        return None
    if cls is FunctionType:
        groups = (value.__closure__, value.__defaults__, (value.__kwdefaults__ or {}).values())
        return [part for group in groups for part in group or ()]
    if cls is CellType:
        try:
            return [value.cell_contents]
        except ValueError:
            return []
    if cls is MethodType:
        return [value.__self__, value.__func__]
    try:
        attributes = object.__getattribute__(value, "__dict__")
    except AttributeError:
        attributes = {}
    return [*_items(value, cls), *attributes.values(), *_slots(value, cls)]


def _items(value: Any, cls: type) -> list[Any]:
    """Return the items of a builtin container, past overrides of a subclass. Other objects have no items."""
    if issubclass(cls, dict):
        return [*dict.keys(value), *dict.values(value)]
    for kind in (list, tuple, set, frozenset, deque):
        if issubclass(cls, kind):
            return list(kind.__iter__(value))
    return []


def _slots(value: object, cls: type) -> Iterator[Any]:
    """Yield the values of the slots of an object. An unset slot gives its descriptor."""
    for member in slots(cls):
        try:
            yield member.__get__(value)
        except AttributeError:
            yield member
