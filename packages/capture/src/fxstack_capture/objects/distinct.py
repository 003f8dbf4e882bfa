"""Guards that different objects stay different.

Two arguments of one type have two proxies. Should a later call pass one object twice, a write
through one name would have to be seen through the other, and ``is`` would answer otherwise. So
whatever was written to, and whatever was compared, is guarded to be distinct from the other objects
of its type; so are objects that were told apart by their ids or hashes.
"""

from __future__ import annotations

import torch

from fxstack_capture.guards.records import AllDistinct
from fxstack_capture.objects.registry import Entry
from fxstack_capture.sources import Source
from fxstack_capture.trace.state import Objects


class Distinctions:
    """What was written to or compared in one trace."""

    def __init__(self, objects: Objects) -> None:
        self.objects = objects
        self.written: dict[int, Entry] = {}
        self.compared: set[tuple[int, int]] = set()
        self.identified: dict[int, Entry] = {}

    def note_written(self, entry: Entry) -> None:
        self.written[id(entry.proxy)] = entry

    def note_compared(self, left: object, right: object) -> None:
        """The program asked whether two objects are the same (``is``, or ``==`` which may start
        with it).
        """
        if left is right or type(left) is not type(right) or isinstance(left, torch.Tensor):
            return
        entries = self.objects.registry.by_proxy
        if self._varies(entries.get(id(left))) and self._varies(entries.get(id(right))):
            self.compared.add((id(left), id(right)))

    def note_identified(self, obj: object) -> None:
        """The program used the identity of an object: its ``id``, or its place in a hash table."""
        entry = self.objects.registry.by_proxy.get(id(obj))
        if entry is not None and self._varies(entry) and not isinstance(obj, torch.Tensor):
            self.identified[id(obj)] = entry

    def _varies(self, entry: Entry | None) -> bool:
        """Whether calls may have another object each: proxies, and what is guarded by its class or text alone."""
        return self._is_proxy(entry) or (
            entry is not None
            and (
                id(entry.proxy) in self.objects.opaque
                or id(entry.proxy) in self.objects.guarded_by_repr
                or entry.proxy in self.objects.contexts
            )
        )

    @staticmethod
    def _is_proxy(entry: Entry | None) -> bool:
        return entry is not None and entry.proxy is not entry.original

    def close(self) -> None:
        entries = self.objects.registry.by_proxy
        for left, right in self.compared:
            self._guard([entries[left].source, entries[right].source])
        named: dict[type, list[Source]] = {}
        for entry in self.identified.values():
            named.setdefault(type(entry.original), []).append(entry.source)
        for sources in named.values():
            self._guard(sources)
        kinds = {type(entry.original) for entry in self.written.values()}
        groups: dict[type, list[Source]] = {kind: [] for kind in kinds}
        for entry in self.objects.registry.proxied():
            group = groups.get(type(entry.original))
            if group is not None:
                group.append(entry.source)
        for group in groups.values():
            self._guard(group)

    def _guard(self, sources: list[Source]) -> None:
        if len(sources) > 1:
            self.objects.trace.guard(sources[0], AllDistinct(tuple(sources[1:])))
