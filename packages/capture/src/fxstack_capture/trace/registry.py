"""The table of objects from outside and their proxies.

An entry keeps the original and the proxy alive for the length of the trace, so their ids stay valid.
Functions, classes and modules are their own proxies.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Final

from fxstack_capture.sources import Source

NEW_CLASS_MARK: Final = "__fxstack_new__"
"""A key in the namespace of a class that marks the class while the program creates it."""


@dataclass(frozen=True, slots=True)
class Entry:
    """An object from outside and its proxy."""

    original: Any
    proxy: Any
    source: Source
    """The source of the first read of the object. Guards name the object by this source."""


class Registry:
    """Entries by the id of the original and by the id of the proxy.

    Each object has one proxy, so that ``is`` has the right answer in the trace.
    """

    def __init__(self) -> None:
        self.by_original: dict[int, Entry] = {}
        """Entries by the id of the object from outside."""
        self.by_proxy: dict[int, Entry] = {}
        """Entries by the id of the proxy, in the order in which the objects were wrapped."""
        self.new: dict[int, object] = {}
        """The objects that the program made during the trace, by id."""

    def add(self, original: object, proxy: object, source: Source) -> Entry:
        """Register the proxy of ``original``. Later reads of the object find this proxy. It is never
        replaced.
        """
        entry = Entry(original, proxy, source)
        self.by_original[id(original)] = entry
        self.by_proxy[id(proxy)] = entry
        return entry

    def add_itself(self, obj: object, source: Source) -> Any:
        """Register ``obj`` as its own proxy, and return it.

        Called when a guard already implies the identity of ``obj``.
        """
        if id(obj) not in self.by_original:
            self.add(obj, obj, source)
        return obj

    def is_new(self, obj: object) -> bool:
        """Whether the program made ``obj`` during the trace."""
        return id(obj) in self.new or (
            isinstance(obj, type) and NEW_CLASS_MARK in type.__dict__["__dict__"].__get__(obj)
        )

    def proxied(self) -> list[Entry]:
        """Return the entries whose proxy differs from the original, in the order in which they were wrapped."""
        return [e for e in self.by_proxy.values() if e.proxy is not e.original]
