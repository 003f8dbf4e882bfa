"""Mirrors of builtin containers: their items enter with them; plain dicts are read key by key."""

from __future__ import annotations

import collections
from typing import TYPE_CHECKING, Any

import torch

from fxstack_capture.breaks import graph_break
from fxstack_capture.guards.records import Equals, IdentityIs, KeysAre, LengthIs, TypeIs
from fxstack_capture.objects.constants import is_constant_key
from fxstack_capture.objects.kinds.lazy_dict import LazyDict
from fxstack_capture.sources import BuiltinAttr, Item, KeyAt

if TYPE_CHECKING:
    from collections.abc import Iterable

    from fxstack_capture.objects.object_model import MirrorWorld
    from fxstack_capture.sources import Source


def items(world: MirrorWorld, obj: Any, iterator: Iterable[Any], source: Source) -> list[Any]:
    """Guard the exact type and length of a sequence and enter its items (``iterator``: C-level
    access).
    """
    world.trace.guard(source, TypeIs(type(obj)))
    values = list(iterator)
    world.trace.guard(source, LengthIs(len(values)))
    return [world.enter(value, Item(source, index)) for index, value in enumerate(values)]


def tuple_(world: MirrorWorld, obj: tuple[Any, ...], source: Source) -> tuple[Any, ...]:
    if not obj:
        world.trace.guard(source, Equals(()))
        return obj
    entered = items(world, obj, obj, source)
    if all(a is b for a, b in zip(entered, obj, strict=True)):
        world.registry.add(obj, obj, source)
        return obj
    standin = tuple(entered)
    world.registry.add(obj, standin, source)
    return standin


def size(world: MirrorWorld, obj: torch.Size, source: Source) -> torch.Size:
    entered = items(world, obj, obj, source)
    standin = torch.Size(entered)
    world.registry.add(obj, standin, source)
    return standin


def list_(world: MirrorWorld, obj: list[Any], source: Source) -> list[Any]:
    standin: list[Any] = []
    world.registry.add(obj, standin, source)  # before its items: a list may contain itself
    standin.extend(items(world, obj, obj, source))
    world.contents[id(standin)] = tuple(standin)
    return standin


def deque(
    world: MirrorWorld, obj: collections.deque[Any], source: Source
) -> collections.deque[Any]:
    standin: collections.deque[Any] = collections.deque(maxlen=obj.maxlen)
    world.registry.add(obj, standin, source)
    world.trace.guard(
        BuiltinAttr(source, "maxlen"),
        Equals(obj.maxlen) if obj.maxlen is not None else IdentityIs(None, id(None)),
    )
    standin.extend(items(world, obj, obj, source))
    world.contents[id(standin)] = tuple(standin)
    return standin


def dict_(world: MirrorWorld, obj: dict[Any, Any], source: Source) -> dict[Any, Any]:
    world.trace.guard(source, TypeIs(dict))
    standin: dict[Any, Any] = {}
    world.registry.add(obj, standin, source)
    world.add_dict(LazyDict(world, obj, standin, source))
    return standin


def set_(world: MirrorWorld, obj: set[Any], source: Source) -> Any:
    standin = _set_like(world, obj, source)
    world.contents[id(standin)] = tuple(standin)
    return standin


def frozenset_(world: MirrorWorld, obj: frozenset[Any], source: Source) -> Any:
    return _set_like(world, obj, source)


def _set_like(world: MirrorWorld, obj: Any, source: Source) -> Any:
    cls = type(obj)
    world.trace.guard(source, TypeIs(cls))
    members = tuple(cls.__iter__(obj))
    if all(map(is_constant_key, members)):
        world.trace.guard(source, KeysAre(members) if members else LengthIs(0))
        # A copy iterates in the original's order: both tables are filled from the same hashes.
        standin = obj if cls is frozenset else obj.copy()
    else:
        world.trace.guard(source, LengthIs(len(members)))
        entered = [world.enter(m, KeyAt(source, i)) for i, m in enumerate(members)]
        calls = world.trace.calls
        with calls.without_effects(members):
            standin = calls.watched(cls, entered)
        world.set_orders[id(standin)] = tuple(entered)
        world.contents[id(standin)] = tuple(standin)
    world.registry.add(obj, standin, source)
    return standin


def slice_(world: MirrorWorld, obj: slice, source: Source) -> slice:
    world.trace.guard(source, TypeIs(slice))
    start, stop, step = (
        world.enter(getattr(obj, n), BuiltinAttr(source, n)) for n in ("start", "stop", "step")
    )
    standin = slice(start, stop, step)
    world.registry.add(obj, standin, source)
    return standin


def bytearray_(world: MirrorWorld, obj: bytearray, source: Source) -> bytearray:
    raise graph_break("unsupported-object", f"{source.name} is a bytearray")
