"""Numbers and texts that contain the address of an object. The address of a proxy must not leave the trace.

For an object from outside, ``id`` and ``hash`` return the number of the original, because the program has
tables that are keyed by the ids of originals. If the next call is expected to pass the same object, its
identity is guarded. A tensor argument is a different object in each call. Programs use its number to
distinguish objects (``memo[id(x)]``). Therefore its identity is guarded only if the program may have compared
the number: another guard then contains a number that may be the address (``close``).

A number that leaves the trace, on its own or as part of a text, is computed again from the real object
(``found``, ``in_text``). A text that contains an address, such as the ``repr`` of an ``object``, cannot be
computed again: a use of the text breaks the graph.
"""

from __future__ import annotations

import re
import weakref
from collections.abc import Callable, Iterable, Iterator
from typing import Any

import sympy
import torch

from fxstack_capture.breaks import graph_break
from fxstack_capture.guards.records import Check, Guard, IdentityIs
from fxstack_capture.shapes.policy import is_argument
from fxstack_capture.sources import Key, Source
from fxstack_capture.trace.registry import Entry, Registry

# Limits: a new object that was made before a graph break has another address after the break. A text with its
# old address (<object at 0x...>) is then wrong. Whether equal strings are the same object is undefined.

_NUMBER = re.compile(r"0x[0-9a-f]+|[0-9]+")
"""Matches a number in decimal or hexadecimal digits."""
_OWN = re.compile(r"<fxstack_capture\.|\bArray object at ")
"""Matches names of objects that exist only while tracing. Plain Python never prints them."""
_ADDRESS = re.compile(r"0x([0-9a-f]{6,16})\b")
"""Matches an address in the text of an object, as ``object.__repr__`` writes it."""


class Addresses:
    """The results of ``id`` and ``hash`` that the program has received in one trace.

    The constructor takes two functions. ``note_identified`` is called with each object whose number the
    program receives. ``is_copying`` returns whether the current frame is in module ``copy``.
    """

    def __init__(
        self,
        registry: Registry,
        guard: Callable[[Source, Check], None],
        note_identified: Callable[[object], None],
        is_copying: Callable[[], bool],
    ) -> None:
        self._registry = registry
        self._guard = guard
        self._note_identified = note_identified
        self._is_copying = is_copying
        self._origins: dict[int, tuple[Callable[[Any], int], Callable[[], Any]]] = {}
        """Maps a number to ``id`` or ``hash``, and to a function that returns the object."""
        self._passed: dict[int, Entry] = {}
        """Objects that differ from call to call. The key is the id of the proxy."""

    def number(self, function: Callable[[Any], int], obj: object, number: int) -> int:
        """Return the result of ``function(obj)`` for the program.

        The rules of ``id`` and ``hash`` call this. ``number`` is the result for the proxy. If the object is
        from outside, return the number of the original instead.
        """
        entry = self._registry.by_proxy.get(id(obj))
        # ``copy.deepcopy`` keeps the ids in a private memo, so they need no guard.
        if entry is None or entry.proxy is entry.original or self._is_copying():
            return self._record(function, obj, number)
        if not self._has_fixed_address(entry):
            self._passed[id(obj)] = entry
            return self._record(function, obj, function(entry.original))
        self._guard(entry.source, IdentityIs(entry.original, id(entry.original)))
        return function(entry.original)

    def close(self, guards: Iterable[Guard]) -> None:
        """Guard the identity of objects that vary between calls if a guard may contain one of their
        addresses.

        Called once at the end of the trace, with all guards so far.
        """
        if self._passed and any(may_be_address(part) for guard in guards for part in _numbers_in(guard)):
            for entry in self._passed.values():
                self._guard(entry.source, IdentityIs(entry.original, id(entry.original)))

    @staticmethod
    def _has_fixed_address(entry: Entry) -> bool:
        """Whether the next call is expected to pass the same object as this call."""
        # The caller makes new tensors and containers for each call. Lists, tuples and dictionaries support no
        # weak references.
        if isinstance(entry.original, torch.Tensor):
            return not is_argument(entry.source)
        return type(entry.original).__weakrefoffset__ != 0

    def _record(self, function: Callable[[Any], int], obj: object, number: int) -> int:
        """Record that ``number`` is ``function(obj)``, and return ``number``.

        In the next call the real object has another number. The replacement code computes it (``found``).
        """
        self._note_identified(obj)
        entry = self._registry.by_proxy.get(id(obj))
        if entry is not None and entry.proxy is entry.original:
            return number
        self._origins[number] = function, _reference(obj)
        return number

    def found(self, number: int) -> tuple[Callable[[Any], int], Any] | None:
        """Return the function and the object that gave ``number``.

        Return None if there is none, or if the object no longer exists. ``Rebuilder`` asks for each int that
        leaves the trace. The replacement then calls the function on the real object.
        """
        origin = self._origins.get(number) if self._origins else None
        if origin is None:
            return None
        obj = origin[1]()
        return None if obj is None else (origin[0], obj)

    def in_text(self, text: str) -> Iterator[tuple[re.Match[str], Callable[[Any], int], Any]]:
        """Yield (match, function, object) for each recorded number in a text.

        The number may have decimal or hexadecimal digits. ``Rebuilder`` asks for each text that leaves the
        trace, and replaces the numbers in it.
        """
        if not self._origins:
            return
        for match in _NUMBER.finditer(text):
            origin = self.found(int(match[0], 16 if match[0].startswith("0x") else 10))
            if origin is not None:
                yield match, *origin

    def demand_none(self, text: str) -> None:
        """Break the graph if ``text`` contains the address of a proxy, or names a class of this package.

        Called with each text that C code has made. Such a text cannot be computed again for the real object.
        """
        if _OWN.search(text):
            raise graph_break("unsupported-object", "a text with the address of an array")
        for match in _ADDRESS.finditer(text):
            entry = self._registry.by_proxy.get(int(match[1], 16))
            if entry is not None and entry.proxy is not entry.original:
                kind = type(entry.original).__qualname__
                raise graph_break("unsupported-object", f"a text with the address of a {kind}")


def _numbers_in(guard: Guard) -> Iterator[object]:
    """Yield the values that a guard compares, and the keys in its source.

    ``Addresses.close`` searches them for addresses.
    """
    for name in guard.check.compared:
        value = getattr(guard.check, name)
        is_expression = isinstance(value, sympy.Basic)
        yield tuple(int(number) for number in value.atoms(sympy.Integer)) if is_expression else value
    source: Source | None = guard.source
    while source is not None:
        if isinstance(source, Key):
            yield source.key
        source = source.base


def may_be_address(value: object) -> bool:
    """Whether a constant may contain an address.

    It is a number as large as an address, a text with such a number, or a tuple or frozenset with such an
    item.
    """
    if type(value) is int:
        return abs(value) >= _LEAST_ADDRESS
    if type(value) is str:
        return len(value) > 6 and any(
            may_be_address(int(m[0], 16 if m[0].startswith("0x") else 10)) for m in _NUMBER.finditer(value)
        )
    return isinstance(value, (tuple, frozenset)) and any(map(may_be_address, value))


_LEAST_ADDRESS = 1 << 24
"""Smaller numbers in guards are not considered as addresses."""


def _reference(obj: object) -> Callable[[], Any]:
    """Return a function that returns ``obj``, or None after the program has dropped ``obj``.

    If ``obj`` is a tensor, or supports no weak references, the function keeps it alive.
    """
    if isinstance(obj, torch.Tensor):
        return lambda: obj
    try:
        return weakref.ref(obj)
    except TypeError:
        return lambda: obj
