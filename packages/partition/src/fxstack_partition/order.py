"""The order of a graph's nodes, chosen by the bytes that are alive at once under it.

Three ideas make the candidates. Recomputation comes as late as possible (``demand_order``). The roots are taken in
the joint graph's own order, gradient by gradient, or in the reverse of that. And what frees at least as much
as it allocates runs as soon as it can (``eager_frees``): gradients of parameters, casts, sums. Which one wins depends
on the model, so each is simulated.
"""

from __future__ import annotations

from heapq import heapify, heappop, heappush
from typing import TYPE_CHECKING

from torch.fx import Node

from fxstack_partition.ops import OpKind
from fxstack_partition.simulate import alive_bytes

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Sequence

    from fxstack_partition.joint import JointFacts
    from fxstack_partition.storage import StorageTable


def demand_order(roots: Iterable[Node], needed: Collection[Node]) -> tuple[Node, ...]:
    """Order ``needed`` so that each node comes just before the first that uses it.

    ``roots`` are visited in the given order; values computed again therefore appear as late as possible.
    """
    done: set[Node] = set()
    order: list[Node] = []
    for root in roots:
        stack = [(root, False)]
        while stack:
            node, ready = stack.pop()
            if node in done or node not in needed:
                continue
            if ready:
                done.add(node)
                order.append(node)
                continue
            stack.append((node, True))
            stack.extend((arg, False) for arg in reversed(node.all_input_nodes))
    return tuple(order)


class _Remaining:
    """Which storages still have readers ahead; finds the last one of each without keeping lists."""

    def __init__(self, order: Sequence[Node], table: StorageTable, kept: frozenset[int]) -> None:
        self._sizes = table.sizes
        self._made = [sum(table.sizes[s] for s in table.made[node]) for node in order]
        self._touched: list[list[int]] = []
        self._count: dict[int, int] = {}
        self._mix: dict[int, int] = {}
        """Exclusive or of the places still ahead: with one left, it is that place."""
        for place, node in enumerate(order):
            storages = dict.fromkeys((*table.made[node], *table.reads(node)))
            touched = [s for s in storages if s not in kept and table.sizes[s]]
            self._touched.append(touched)
            for storage in touched:
                self._count[storage] = self._count.get(storage, 0) + 1
                self._mix[storage] = self._mix.get(storage, 0) ^ place

    def frees(self, place: int) -> bool:
        """Whether running this node now leaves no more bytes alive than before it."""
        growth = self._made[place]
        for storage in self._touched[place]:
            if self._count[storage] == 1:
                growth -= self._sizes[storage]
        return growth <= 0

    def run(self, place: int) -> list[int]:
        """Mark a node as run; return the nodes that became the last reader of something."""
        last = []
        for storage in self._touched[place]:
            self._count[storage] -= 1
            self._mix[storage] ^= place
            if self._count[storage] == 1:
                last.append(self._mix[storage])
        return last


def eager_frees(
    order: Sequence[Node], table: StorageTable, kept: frozenset[int]
) -> tuple[Node, ...]:
    """Reorder so that what frees at least as much as it allocates runs as soon as it can; else keep ``order``."""
    places = {node: place for place, node in enumerate(order)}
    remaining = _Remaining(order, table, kept)
    users = [[places[user] for user in node.users if user in places] for node in order]
    missing = [sum(arg in places for arg in node.all_input_nodes) for node in order]
    count = len(order)
    heap = [p if remaining.frees(p) else p + count for p in range(count) if missing[p] == 0]
    heapify(heap)
    done = bytearray(count)
    result: list[Node] = []
    while heap:
        rank = heappop(heap)
        place = rank % count
        if done[place]:
            continue
        done[place] = 1
        result.append(order[place])
        for reader in remaining.run(place):
            if missing[reader] == 0 and not done[reader] and remaining.frees(reader):
                heappush(heap, reader)
        for user in users[place]:
            missing[user] -= 1
            if missing[user] == 0:
                heappush(heap, user if remaining.frees(user) else user + count)
    return tuple(result)


def peak_bytes(
    order: Iterable[Node], table: StorageTable, held: Iterable[int], kept: Iterable[int]
) -> int:
    """Return the largest number of bytes alive at once when nodes run in this order."""
    steps = [(table.made[node], table.reads(node)) for node in order]
    return max(alive_bytes(steps, table.sizes, held, kept), default=0)


_FIXED = (OpKind.RANDOM, OpKind.EFFECT, OpKind.COLLECTIVE)
"""Kinds whose order among themselves the program can observe."""


def choose_order(
    facts: JointFacts, needed: Collection[Node], handed: Sequence[Node]
) -> tuple[Node, ...]:
    """Order the backward, given the nodes it runs and those handed to it.

    Of the candidates the one with the lowest simulated peak is taken; the first on a tie.
    """
    table = facts.storages
    own = [n for n in facts.nodes[:-1] if n in needed and n in facts.backward]
    gradients = [value for value in facts.gradients if isinstance(value, Node)]
    late = demand_order((*own, *gradients), needed)
    if any(facts.kinds[node] in _FIXED for node in own):
        return late
    results = {s for v in facts.results for s in table.of[v]}
    kept = frozenset(results.union(s for node in gradients for s in table.of[node]))
    held = results.union(s for node in (*handed, *facts.tangents) for s in table.of.get(node, ()))
    by_gradient = demand_order(gradients, needed)
    by_reverse = demand_order(reversed(gradients), needed)
    candidates = [
        late,
        *(eager_frees(order, table, kept) for order in (late, by_gradient, by_reverse)),
    ]
    return min(candidates, key=lambda order: peak_bytes(order, table, held, kept))
