"""Numbers and texts that hold the address of an object. The address of a proxy must not leave the trace.

``id`` and ``hash`` of an object from outside give the number of the original, because the program's tables by
id hold the ids of the originals. If the object is expected to be the same object in the next call, an
identity guard is added. A tensor argument is a different object in each call. Programs use the number of a
tensor argument to tell objects apart (``memo[id(x)]``), so its identity is guarded only if another guard
holds a number that may be an address, with which the program may have compared the number (``close``).

A number that leaves the trace, also as part of a text, is computed again from the real object (``found``,
``in_text``). A text that holds an address, such as the ``repr`` of an ``object``, cannot be computed again:
a use of the text breaks the graph.
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

# Limits: a new object that was made before a graph break has another address after the break, so a text with
# that address (<object at 0x...>) names another address. Equal strings may or may not be the same object.

_NUMBER = re.compile(r"0x[0-9a-f]+|[0-9]+")
"""A number in decimal or hexadecimal digits."""
_OWN = re.compile(r"<fxstack_capture\.|\bArray object at ")
"""Texts of objects that exist only while tracing, so that plain Python never prints them."""
_ADDRESS = re.compile(r"0x([0-9a-f]{6,16})\b")
"""An address in the text of an object, as ``object.__repr__`` writes it."""


class Addresses:
    """The results of ``id`` and ``hash`` that the program has received in one trace.

    ``note_identified`` is called with each object whose number the program receives. ``is_copying`` says
    whether the current frame is in module ``copy``.
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
        """By number: the function (``id`` or ``hash``), and a function that returns its argument."""
        self._passed: dict[int, Entry] = {}
        """Objects that differ from call to call, by the id of the proxy."""

    def number(self, function: Callable[[Any], int], obj: object, number: int) -> int:
        """Return the result of ``function(obj)`` that the program gets.

        The rules of ``id`` and ``hash`` call this. ``number`` is the result for the proxy. A registered object
        from outside gives the number of the original.
        """
        entry = self._registry.by_proxy.get(id(obj))
        # ``copy.deepcopy`` keeps its ids in a private memo, so the ids need no guard.
        if entry is None or entry.proxy is entry.original or self._is_copying():
            return self._record(function, obj, number)
        if not self._has_fixed_address(entry):
            self._passed[id(obj)] = entry
            return self._record(function, obj, function(entry.original))
        self._guard(entry.source, IdentityIs(entry.original, id(entry.original)))
        return function(entry.original)

    def close(self, guards: Iterable[Guard]) -> None:
        """Guard the identity of objects that vary between calls if a guard may hold one of their addresses.

        Called once at the end of the trace, with all guards so far.
        """
        if self._passed and any(may_be_address(part) for guard in guards for part in _numbers_in(guard)):
            for entry in self._passed.values():
                self._guard(entry.source, IdentityIs(entry.original, id(entry.original)))

    @staticmethod
    def _has_fixed_address(entry: Entry) -> bool:
        """Whether the next call is expected to pass the same object."""
        # The caller makes new tensors and containers for each call. Lists, tuples and dictionaries have no
        # weak references.
        if isinstance(entry.original, torch.Tensor):
            return not is_argument(entry.source)
        return type(entry.original).__weakrefoffset__ != 0

    def _record(self, function: Callable[[Any], int], obj: object, number: int) -> int:
        """Record that ``number`` is ``function(obj)``, and return ``number``.

        In the next call the real object has another number, which the replacement code must compute (``found``).
        """
        self._note_identified(obj)
        entry = self._registry.by_proxy.get(id(obj))
        if entry is not None and entry.proxy is entry.original:
            return number
        self._origins[number] = function, _reference(obj)
        return number

    def found(self, number: int) -> tuple[Callable[[Any], int], Any] | None:
        """Return the function and the object that gave ``number``; None if no object gave it, or the object no
        longer exists. ``Rebuilder`` asks for each int that leaves the trace, and calls the function again on the
        real object.
        """
        origin = self._origins.get(number) if self._origins else None
        if origin is None:
            return None
        obj = origin[1]()
        return None if obj is None else (origin[0], obj)

    def in_text(self, text: str) -> Iterator[tuple[re.Match[str], Callable[[Any], int], Any]]:
        """Yield the recorded numbers that a text contains in decimal or hexadecimal digits: match, function and
        object. ``Rebuilder`` asks for each text that leaves the trace, and replaces the numbers in the text.
        """
        if not self._origins:
            return
        for match in _NUMBER.finditer(text):
            origin = self.found(int(match[0], 16 if match[0].startswith("0x") else 10))
            if origin is not None:
                yield match, *origin

    def demand_none(self, text: str) -> None:
        """Break the graph if ``text`` holds the address of a proxy, or names a class of this package.

        Called with each text that C code has made, because such a text cannot be computed again for the real
        object.
        """
        if _OWN.search(text):
            raise graph_break("unsupported-object", "a text with the address of an array")
        for match in _ADDRESS.finditer(text):
            entry = self._registry.by_proxy.get(int(match[1], 16))
            if entry is not None and entry.proxy is not entry.original:
                kind = type(entry.original).__qualname__
                raise graph_break("unsupported-object", f"a text with the address of a {kind}")


def _numbers_in(guard: Guard) -> Iterator[object]:
    """Yield the values that a guard compares, and the keys in the source of the guard.

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
    """Whether a constant is a number as large as an address, or a text, tuple or frozenset that contains one."""
    if type(value) is int:
        return abs(value) >= _LEAST_ADDRESS
    if type(value) is str:
        return len(value) > 6 and any(
            may_be_address(int(m[0], 16 if m[0].startswith("0x") else 10)) for m in _NUMBER.finditer(value)
        )
    return isinstance(value, (tuple, frozenset)) and any(map(may_be_address, value))


_LEAST_ADDRESS = 1 << 24
"""Smaller numbers in guards are not taken for addresses."""


def _reference(obj: object) -> Callable[[], Any]:
    """Return a function that returns ``obj``, or None once the program has dropped ``obj``.

    The function keeps a tensor alive, and an object that does not support weak references.
    """
    if isinstance(obj, torch.Tensor):
        return lambda: obj
    try:
        return weakref.ref(obj)
    except TypeError:
        return lambda: obj
