"""Who stands for whom: the table between pre-existing objects and their proxies.

An entry keeps both alive for the length of the trace, so ids stay valid. Objects that enter as
themselves (functions, classes, modules) are entries whose proxy is the original.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Final

from fxstack_capture.sources import Source

NEW_CLASS_MARK: Final = "__fxstack_new__"
"""In the namespace of a class that is being made by the program."""


@dataclass(frozen=True, slots=True)
class Entry:
    """One pre-existing object, what represents it, and where it was first found."""

    original: Any
    proxy: Any
    source: Source


class Registry:
    """Entries by the identity of either side."""

    def __init__(self) -> None:
        self.by_original: dict[int, Entry] = {}
        self.by_proxy: dict[int, Entry] = {}
        self.new: dict[int, object] = {}

    def add(self, original: object, proxy: object, source: Source) -> Entry:
        entry = Entry(original, proxy, source)
        self.by_original[id(original)] = entry
        self.by_proxy[id(proxy)] = entry
        return entry

    def proxied(self) -> list[Entry]:
        """Entries that are not their own proxy, in order of entry."""
        return [e for e in self.by_proxy.values() if e.proxy is not e.original]
