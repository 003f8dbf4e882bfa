"""Numbers and texts that say where an object lies: they are those of proxies, which must not leave the trace.

An object from outside gives its true number: the program's tables by id are those of the objects themselves. Where it can
be expected to be the same one at the next call, a guard says so. A tensor that is passed is another one in each call: its
number is used to tell objects apart (``memo[id(x)]``), and only where something that is guarded holds a number that may
be an address, with which the program may have compared it, the object has to be the same one, too (``close``).
Where a number leaves, also as part of a text, it is computed anew from the object that stands outside (``found``,
``in_text``). A text that holds an address (the ``repr`` of ``object``) cannot be computed anew: it ends the graph.
"""

from __future__ import annotations

import re
import weakref
from collections.abc import Callable, Iterator
from typing import Any

import sympy
import torch

from fxstack_capture.breaks import graph_break
from fxstack_capture.guards.records import Equals, Guard, HasKey, IdentityIs, KeysAre, ShapeHolds
from fxstack_capture.objects.registry import Entry
from fxstack_capture.shapes.policy import is_argument
from fxstack_capture.sources import Key, Source
from fxstack_capture.trace.state import Objects

# Limits: text with the address of a new object (<object at 0x...>) that was made before a graph break names
# another address after it. Equal strings may or may not be the same object.

_NUMBER = re.compile(r"0x[0-9a-f]+|[0-9]+")
_ADDRESS = re.compile(r"0x([0-9a-f]{6,16})\b")


class Addresses:
    """What ``id`` and ``hash`` have given in one trace."""

    def __init__(self, objects: Objects) -> None:
        self._objects = objects
        self._given: dict[int, tuple[Callable[[Any], int], Callable[[], Any]]] = {}
        self._passed: dict[int, Entry] = {}
        """By the id of the proxy: objects that are others in each call."""

    def number(self, function: Callable[[Any], int], obj: object, number: int) -> int:
        """What ``function(obj)`` is to the program; ``number`` is what it is of the proxy."""
        entry = self._objects.registry.by_proxy.get(id(obj))
        if entry is None or entry.proxy is entry.original or self._is_copying():
            return self._give(function, obj, number)
        if not self._has_fixed_address(entry):
            self._passed[id(obj)] = entry
            return self._give(function, obj, function(entry.original))
        self._objects.trace.guard(entry.source, IdentityIs(entry.original, id(entry.original)))
        return function(entry.original)

    def close(self) -> None:
        """Guard objects that are others in each call where what is guarded may hold the number of one."""
        guards = [*self._objects.trace.guards] if self._passed else []
        if any(may_be_address(part) for guard in guards for part in _numbers_in(guard)):
            for entry in self._passed.values():
                check = IdentityIs(entry.original, id(entry.original))
                self._objects.trace.guard(entry.source, check)

    def _is_copying(self) -> bool:
        """``deepcopy`` shows its ids to nobody."""
        interp: Any = self._objects.trace.interp
        return bool(interp.current_frame().globals.get("__name__") == "copy")

    @staticmethod
    def _has_fixed_address(entry: Entry) -> bool:
        """Tensors and containers that are passed are new ones in each call."""
        if isinstance(entry.original, torch.Tensor):
            return not is_argument(entry.source)
        return type(entry.original).__weakrefoffset__ != 0

    def _give(self, function: Callable[[Any], int], obj: object, number: int) -> int:
        """Remember that ``number`` is ``function(obj)``: it is another one outside."""
        self._objects.distinctions.note_identified(obj)
        entry = self._objects.registry.by_proxy.get(id(obj))
        if entry is not None and entry.proxy is entry.original:
            return number
        self._given[number] = function, _reference(obj)
        return number

    def found(self, number: int) -> tuple[Callable[[Any], int], Any] | None:
        """The function and the object that gave ``number``, if they did and the object is still there."""
        given = self._given.get(number) if self._given else None
        if given is None:
            return None
        obj = given[1]()
        return None if obj is None else (given[0], obj)

    def in_text(self, text: str) -> Iterator[tuple[re.Match[str], Callable[[Any], int], Any]]:
        """Where a text shows numbers that were given, in decimal or hexadecimal digits."""
        if not self._given:
            return
        for match in _NUMBER.finditer(text):
            found = self.found(int(match[0], 16 if match[0].startswith("0x") else 10))
            if found is not None:
                yield match, *found

    def demand_none(self, text: str) -> None:
        """Break the graph if ``text`` holds the address of a proxy."""
        registry = self._objects.registry
        for match in _ADDRESS.finditer(text):
            entry = registry.by_proxy.get(int(match[1], 16))
            if entry is not None and entry.proxy is not entry.original:
                kind = type(entry.original).__qualname__
                raise graph_break("unsupported-object", f"a text with the address of a {kind}")


def _numbers_in(guard: Guard) -> Iterator[object]:
    """What a guard asks for by value: in its check and on the way to its source."""
    match guard.check:
        case Equals(value=value) | HasKey(key=value) | KeysAre(keys=value):
            yield value
        case ShapeHolds(expr=expr):
            yield tuple(int(number) for number in expr.atoms(sympy.Integer))
    source: Source | None = guard.source
    while source is not None:
        if isinstance(source, Key):
            yield source.key
        source = source.base


def may_be_address(value: object) -> bool:
    """Whether a constant is a number as large as addresses are, or holds one, also as text."""
    if type(value) is int:
        return abs(value) >= _LEAST_ADDRESS
    if type(value) is str:
        return len(value) > 6 and any(
            may_be_address(int(m[0], 16 if m[0].startswith("0x") else 10)) for m in _NUMBER.finditer(value)
        )
    return isinstance(value, (tuple, frozenset)) and any(map(may_be_address, value))


_LEAST_ADDRESS = 1 << 24


def _reference(obj: object) -> Callable[[], Any]:
    """What gives the object as long as the program keeps it, where that can be known."""
    if isinstance(obj, torch.Tensor):
        return lambda: obj
    try:
        return weakref.ref(obj)
    except TypeError:
        return lambda: obj
