"""Numbers and texts that say where an object lies: they are those of stand-ins, which must not leave the trace.

While tracing, ``id`` of a stand-in is as good as that of the object itself: it is used to tell objects apart
(``memo[id(x)]``). Where such a number leaves, it is computed anew from the object that stands outside
(``found``). A text that holds an address (the ``repr`` of ``object``) cannot be computed anew: it ends the graph.
"""

from __future__ import annotations

import re
import weakref
from typing import TYPE_CHECKING, Any

import torch

from fxstack_capture.breaks import graph_break

if TYPE_CHECKING:
    from collections.abc import Callable

    from fxstack_capture.world.world import MirrorWorld

_ADDRESS = re.compile(r"0x([0-9a-f]{6,16})\b")


class Addresses:
    """What ``id`` and ``hash`` have given in one trace."""

    def __init__(self, world: MirrorWorld) -> None:
        self._world = world
        self._given: dict[int, tuple[Callable[[Any], int], Callable[[], Any]]] = {}

    def give(self, function: Callable[[Any], int], obj: Any, number: int) -> int:
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
