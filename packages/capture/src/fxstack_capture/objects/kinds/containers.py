"""Proxies of builtin containers. Their items are wrapped at once; only a plain dictionary is read key by key."""

from __future__ import annotations

import collections
from collections.abc import Iterable
from typing import Any

import torch

from fxstack_capture.breaks import graph_break
from fxstack_capture.guards.records import Equals, IdentityIs, KeysAre, LengthIs, TypeIs
from fxstack_capture.sources import BuiltinAttr, Item, KeyAt, Source
from fxstack_capture.trace.constants import is_constant_key
from fxstack_capture.trace.lazy_dict import LazyDict
from fxstack_capture.trace.state import Objects


def items(objects: Objects, obj: object, iterator: Iterable[Any], source: Source) -> list[Any]:
    """Guard the exact type and length of a sequence, and return its wrapped items.

    ``iterator`` iterates over the sequence in C. The ``__iter__`` of a subclass may be code of the program.
    """
    objects.trace.guard(source, TypeIs(type(obj)))
    values = list(iterator)
    objects.trace.guard(source, LengthIs(len(values)))
    return [objects.enter(value, Item(source, index)) for index, value in enumerate(values)]


def tuple_(objects: Objects, obj: tuple[Any, ...], source: Source) -> tuple[Any, ...]:
    """Wrap the items of a tuple. If all items are their own proxies, the tuple is its own proxy."""
    if not obj:
        objects.trace.guard(source, Equals(()))
        return obj
    entered = items(objects, obj, obj, source)
    if all(a is b for a, b in zip(entered, obj, strict=True)):
        objects.registry.add(obj, obj, source)
        return obj
    proxy = tuple(entered)
    objects.registry.add(obj, proxy, source)
    return proxy


def size(objects: Objects, obj: torch.Size, source: Source) -> torch.Size:
    """Wrap a ``torch.Size``. Its numbers may be symbolic."""
    entered = items(objects, obj, obj, source)
    proxy = torch.Size(entered)
    objects.registry.add(obj, proxy, source)
    return proxy


def list_(objects: Objects, obj: list[Any], source: Source) -> list[Any]:
    """Copy a list with wrapped items.

    ``Objects.contents`` keeps the wrapped items. ``effect_diff`` compares the proxy with them to find the
    program's writes.
    """
    proxy: list[Any] = []
    # Register the proxy before wrapping the items, since a list may contain itself.
    objects.registry.add(obj, proxy, source)
    proxy.extend(items(objects, obj, obj, source))
    objects.contents[id(proxy)] = tuple(proxy)
    return proxy


def deque(objects: Objects, obj: collections.deque[Any], source: Source) -> collections.deque[Any]:
    """Copy a deque with wrapped items and guard its ``maxlen``."""
    proxy: collections.deque[Any] = collections.deque(maxlen=obj.maxlen)
    objects.registry.add(obj, proxy, source)
    objects.trace.guard(
        BuiltinAttr(source, "maxlen"),
        Equals(obj.maxlen) if obj.maxlen is not None else IdentityIs(None, id(None)),
    )
    proxy.extend(items(objects, obj, obj, source))
    objects.contents[id(proxy)] = tuple(proxy)
    return proxy


def dict_(objects: Objects, obj: dict[Any, Any], source: Source) -> dict[Any, Any]:
    """Return the lazy proxy of a dictionary. No item is read yet."""
    objects.trace.guard(source, TypeIs(dict))
    return objects.add_dict(LazyDict(objects, obj, {}, source)).proxy


def set_(objects: Objects, obj: set[Any], source: Source) -> Any:
    """Copy a set.

    ``Objects.contents`` keeps the members. ``effect_diff`` compares the proxy with them to find the program's
    writes.
    """
    proxy = _set_like(objects, obj, source)
    objects.contents[id(proxy)] = tuple(proxy)
    return proxy


def frozenset_(objects: Objects, obj: frozenset[Any], source: Source) -> Any:
    """Copy a frozenset with wrapped members."""
    return _set_like(objects, obj, source)


def _set_like(objects: Objects, obj: Any, source: Source) -> Any:
    """Copy a set or frozenset, and guard its members. A member that is no constant is wrapped."""
    cls = type(obj)
    objects.trace.guard(source, TypeIs(cls))
    members = tuple(cls.__iter__(obj))
    if all(map(is_constant_key, members)):
        objects.trace.guard(source, KeysAre(members) if members else LengthIs(0))
        # A copy iterates in the order of the original, because both tables are filled with the same hashes.
        proxy = obj if cls is frozenset else obj.copy()
    else:
        objects.trace.guard(source, LengthIs(len(members)))
        entered = [objects.enter(m, KeyAt(source, i)) for i, m in enumerate(members)]
        calls = objects.trace.calls
        with calls.without_effects(members):
            proxy = calls.watched(cls, entered)
        objects.set_orders[id(proxy)] = tuple(entered)
        objects.contents[id(proxy)] = tuple(proxy)
    objects.registry.add(obj, proxy, source)
    return proxy


def set_order(objects: Objects, proxy: Any) -> tuple[Any, ...] | None:
    """Return the members of a wrapped set in the iteration order of the original set.

    Called before the program iterates. The hashes of proxies would give another order. Return None if the
    proxy already has a correct order. Raises GraphBreak if the program has changed the set.
    """
    order = objects.set_orders.get(id(proxy))
    if order is None:
        return None
    originals = objects.contents[id(proxy)]
    if len(order) != len(proxy) or any(
        original is not current for original, current in zip(originals, proxy, strict=True)
    ):
        raise graph_break("unsupported-object", "iteration over a set of objects that the program changed")
    return order


def slice_(objects: Objects, obj: slice, source: Source) -> slice:
    """Wrap the three parts of a slice, which may be dynamic numbers."""
    objects.trace.guard(source, TypeIs(slice))
    start, stop, step = (
        objects.enter(getattr(obj, n), BuiltinAttr(source, n)) for n in ("start", "stop", "step")
    )
    proxy = slice(start, stop, step)
    objects.registry.add(obj, proxy, source)
    return proxy


def bytearray_(objects: Objects, obj: bytearray, source: Source) -> bytearray:
    """Break the graph. A bytearray is mutable, and neither guards nor effects describe its bytes."""
    raise graph_break("unsupported-object", f"{source.name} is a bytearray")
