"""Guards that different objects stay different.

Two arguments of one type have two proxies. If a later call passes one object twice, a write through one name
must be visible through the other name, and ``is`` gives another result. Therefore the guards demand that an
object that the program wrote to or compared is distinct from the other objects of its type. The same holds
for objects that the program told apart by id or hash.
"""

from __future__ import annotations

import torch

from fxstack_capture.guards.records import AllDistinct
from fxstack_capture.sources import Source
from fxstack_capture.trace.registry import Entry
from fxstack_capture.trace.state import Objects


class Distinctions:
    """Objects that the program wrote to, compared or identified in one trace."""

    def __init__(self, objects: Objects) -> None:
        self.objects = objects
        self.written: dict[int, Entry] = {}
        self.compared: set[tuple[int, int]] = set()
        self.identified: dict[int, Entry] = {}

    def note_written(self, entry: Entry) -> None:
        self.written[id(entry.proxy)] = entry

    def note_compared(self, left: object, right: object) -> None:
        """Record that the program compared the identity of two objects.

        ``is`` compares the identity. ``==`` may compare the identity first.
        """
        if left is right or type(left) is not type(right) or isinstance(left, torch.Tensor):
            return
        entries = self.objects.registry.by_proxy
        if self._varies(entries.get(id(left))) and self._varies(entries.get(id(right))):
            self.compared.add((id(left), id(right)))

    def note_identified(self, obj: object) -> None:
        """Record that the program used the identity of ``obj``: its ``id`` or its place in a hash table."""
        entry = self.objects.registry.by_proxy.get(id(obj))
        if entry is not None and self._varies(entry) and not isinstance(obj, torch.Tensor):
            self.identified[id(obj)] = entry

    def _varies(self, entry: Entry | None) -> bool:
        """Whether another call may have another object: a proxy, or an object guarded by class or text."""
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
