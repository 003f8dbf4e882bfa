"""Numbers and texts that say where an object lies: they are those of stand-ins, which must not leave the trace.

Where an object can be expected to be the same one at the next call, a guard says so and its true number is given:
the program's tables by id are those of the objects themselves. Otherwise ``id`` of a stand-in is as good while
tracing: it is used to tell objects apart (``memo[id(x)]``). Where such a number leaves, also as part of a text, it
is computed anew from the object that stands outside (``found``, ``in_text``). A text that holds an address (the
``repr`` of ``object``) cannot be computed anew: it ends the graph.
"""

from __future__ import annotations

import re
import weakref
from typing import TYPE_CHECKING, Any

import torch

from fxstack_capture.breaks import graph_break
from fxstack_capture.guards.records import IdentityIs
from fxstack_capture.shapes.policy import is_argument

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from fxstack_capture.world.registry import Entry
    from fxstack_capture.world.world import MirrorWorld

_NUMBER = re.compile(r"0x[0-9a-f]+|[0-9]+")
_ADDRESS = re.compile(r"0x([0-9a-f]{6,16})\b")


class Addresses:
    """What ``id`` and ``hash`` have given in one trace."""

    def __init__(self, world: MirrorWorld) -> None:
        self._world = world
        self._given: dict[int, tuple[Callable[[Any], int], Callable[[], Any]]] = {}

    def number(self, function: Callable[[Any], int], obj: Any, number: int) -> int:
        """What ``function(obj)`` is to the program; ``number`` is what it is of the stand-in."""
        entry = self._world.registry.by_standin.get(id(obj))
        if entry is None or entry.standin is entry.original or not self._is_settled(entry):
            return self._give(function, obj, number)
        self._world.trace.guard(entry.source, IdentityIs(entry.original, id(entry.original)))
        return function(entry.original)

    def _is_settled(self, entry: Entry) -> bool:
        """Tensors and containers that are passed are new ones in each call; ``deepcopy`` shows its ids to nobody."""
        interp: Any = self._world.trace.interp
        if interp.current_frame().globals.get("__name__") == "copy":
            return False
        if isinstance(entry.original, torch.Tensor):
            return not is_argument(entry.source)
        return type(entry.original).__weakrefoffset__ != 0

    def _give(self, function: Callable[[Any], int], obj: Any, number: int) -> int:
        """Remember that ``number`` is ``function(obj)``: it is another one outside."""
        self._world.distinctions.note_identified(obj)
        entry = self._world.registry.by_standin.get(id(obj))
        if entry is not None and entry.standin is entry.original:
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
        """Break the graph if ``text`` holds the address of a stand-in."""
        registry = self._world.registry
        for match in _ADDRESS.finditer(text):
            entry = registry.by_standin.get(int(match[1], 16))
            if entry is not None and entry.standin is not entry.original:
                kind = type(entry.original).__qualname__
                raise graph_break("unsupported-object", f"a text with the address of a {kind}")


def _reference(obj: Any) -> Callable[[], Any]:
    """What gives the object as long as the program keeps it, where that can be known."""
    if isinstance(obj, torch.Tensor):
        return lambda: obj
    try:
        return weakref.ref(obj)
    except TypeError:
        return lambda: obj
