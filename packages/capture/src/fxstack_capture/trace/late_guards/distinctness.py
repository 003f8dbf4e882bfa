"""Guards that different objects stay different.

Two arguments of one type have two proxies. A later call may pass one object for both. A write through one
name would then be visible through the other name, and ``is`` would give another result. Therefore the guards
demand that certain objects differ from the other objects of their type: objects that the program wrote to or
compared, and objects that it distinguished by id or hash.
"""

from __future__ import annotations

from collections.abc import Callable

import torch

from fxstack_capture.guards.records import AllDistinct, Check
from fxstack_capture.sources import Source
from fxstack_capture.trace.registry import Entry, Registry


class Distinctions:
    """Objects that the program wrote to, compared or identified in one trace.

    ``varies`` takes an object that is its own proxy. It returns whether the next call may have another object
    in its place.
    """

    def __init__(
        self, registry: Registry, guard: Callable[[Source, Check], None], varies: Callable[[object], bool]
    ) -> None:
        self._registry = registry
        self._add_guard = guard
        self._itself_varies = varies
        self.written: dict[int, Entry] = {}
        """Objects that the program wrote to. The key is the id of the proxy."""
        self.compared: set[tuple[int, int]] = set()
        """Pairs of objects that the program compared with ``is``, as ids of their proxies."""
        self.identified: dict[int, Entry] = {}
        """Objects whose ``id`` or hash the program used. The key is the id of the proxy."""

    def note_written(self, entry: Entry) -> None:
        """Record that the program wrote to an object from outside.

        ``effect_diff`` calls this for each effect.
        """
        self.written[id(entry.proxy)] = entry

    def note_compared(self, left: object, right: object) -> None:
        """Record that the program compared the identity of two objects.

        Called for ``is``. Also called for operators such as ``==``, which may compare the identity before the
        value.
        """
        if left is right or type(left) is not type(right) or isinstance(left, torch.Tensor):
            return
        entries = self._registry.by_proxy
        if self._varies(entries.get(id(left))) and self._varies(entries.get(id(right))):
            self.compared.add((id(left), id(right)))

    def note_identified(self, obj: object) -> None:
        """Record that the program used the identity of ``obj``: its ``id``, or its place in a hash table.

        ``Addresses`` calls this. It is also called before C code hashes ``obj``.
        """
        entry = self._registry.by_proxy.get(id(obj))
        if entry is not None and self._varies(entry) and not isinstance(obj, torch.Tensor):
            self.identified[id(obj)] = entry

    def _varies(self, entry: Entry | None) -> bool:
        """Whether another call may have another object in place of the entry's original.

        False for None, which stands for an object made in the trace.
        """
        return entry is not None and (entry.proxy is not entry.original or self._itself_varies(entry.proxy))

    def close(self) -> None:
        """Add the guards. Called at the end of the trace.

        Each compared pair gets one guard. Each group of objects of one type gets one guard.
        """
        entries = self._registry.by_proxy
        for first, second in self.compared:
            self._guard([entries[first].source, entries[second].source])
        named: dict[type, list[Source]] = {}
        for entry in self.identified.values():
            named.setdefault(type(entry.original), []).append(entry.source)
        for sources in named.values():
            self._guard(sources)
        kinds = {type(entry.original) for entry in self.written.values()}
        groups: dict[type, list[Source]] = {kind: [] for kind in kinds}
        # A write to one object may be a write to any other object of its type, even to one that was only
        # read.
        for entry in self._registry.proxied():
            group = groups.get(type(entry.original))
            if group is not None:
                group.append(entry.source)
        for group in groups.values():
            self._guard(group)

    def _guard(self, sources: list[Source]) -> None:
        """Guard that the objects at ``sources`` are distinct."""
        if len(sources) > 1:
            self._add_guard(sources[0], AllDistinct(tuple(sources[1:])))
