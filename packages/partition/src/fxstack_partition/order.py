"""The order of a backward's nodes, chosen by the bytes that are alive at once under it.

Three ideas make the candidates. Recomputation comes as late as possible (``demand_order``). The roots are taken in
the joint graph's own order, gradient by gradient, or in the reverse of that. And what frees at least as much
as it allocates runs as soon as it can (``eager_frees``): gradients of parameters, casts, sums. Which one wins depends
on the model, so each is simulated.
"""

from __future__ import annotations

from heapq import heapify, heappop, heappush
from typing import TYPE_CHECKING

from fxstack_partition.ops import OpKind

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence

    from fxstack_partition.compact import Compact, Memory
    from fxstack_partition.plan import Plan


def demand_order(graph: Compact, roots: Iterable[int], needed: Sequence[int]) -> list[int]:
    """Order the nodes that are ``needed`` (1 for each) so that each comes just before the first that uses it.

    ``roots`` are visited in the given order; values computed again therefore appear as late as possible. The elements of a
    multiple result follow it at once, because what nobody reads of it lives until the last of them is taken.
    """
    args, elements = graph.args_backwards, graph.elements
    missing = bytearray(needed)
    order: list[int] = []
    for root in roots:
        stack = [root]
        while stack:
            place = stack.pop()
            if place < 0:
                for made in (~place, *elements.get(~place, ())):
                    if missing[made]:
                        missing[made] = 0
                        order.append(made)
            elif missing[place]:
                stack.append(~place)
                stack += [arg for arg in args[place] if missing[arg]]
    return order


_MANY = 1 << 60


def eager_frees(
    graph: Compact,
    order: Sequence[int],
    kept: Iterable[int],
    memory: Memory | None = None,
) -> list[int]:
    """Reorder so that what frees at least as much as it allocates runs as soon as it can; else keep ``order``.

    Nodes are known by their rank in ``order``. ``growth`` is what running one now would add to the bytes alive.
    ``memory`` is what nodes make and touch, if that is not what the joint graph's do.
    """
    count, sizes = len(order), graph.sizes
    made, touches = memory or graph.memory
    touched = [touches[place] for place in order]
    readers, mix = _readers_ahead(touched, len(sizes), kept)
    growth = [sum(sizes[s] for s in made[place]) for place in order]
    for storage, ahead in enumerate(readers):
        if ahead == 1:
            growth[mix[storage]] -= sizes[storage]
    users, missing = _among(graph, order)
    heap = [r if growth[r] <= 0 else r + count for r in range(count) if missing[r] == 0]
    heapify(heap)
    done = bytearray(count)
    result: list[int] = []
    while heap:
        rank = heappop(heap) % count
        if done[rank]:
            continue
        done[rank] = 1
        result.append(order[rank])
        for storage in touched[rank]:
            readers[storage] -= 1
            mix[storage] ^= rank
            if readers[storage] == 1:
                last = mix[storage]
                growth[last] -= sizes[storage]
                if missing[last] == 0 and not done[last] and growth[last] <= 0:
                    heappush(heap, last)
        for user in users[rank]:
            missing[user] -= 1
            if missing[user] == 0:
                heappush(heap, user if growth[user] <= 0 else user + count)
    return result


def _readers_ahead(
    touched: Sequence[Iterable[int]], count: int, kept: Iterable[int]
) -> tuple[list[int], list[int]]:
    """Return for each storage how many ranks touch it, and their exclusive or: with one left, it is that rank."""
    readers, mix = [0] * count, [0] * count
    for storage in kept:
        readers[storage] = _MANY
    for rank, storages in enumerate(touched):
        for storage in storages:
            readers[storage] += 1
            mix[storage] ^= rank
    return readers, mix


def _among(graph: Compact, order: Sequence[int]) -> tuple[list[list[int]], list[int]]:
    """Return for each rank the ranks that read it, and how many of its arguments have a rank."""
    rank_of = [-1] * graph.count
    for rank, place in enumerate(order):
        rank_of[place] = rank
    users: list[list[int]] = [[] for _ in order]
    missing = [0] * len(order)
    args = graph.args
    for rank, place in enumerate(order):
        for arg in args[place]:
            before = rank_of[arg]
            if before >= 0:
                users[before].append(rank)
                missing[rank] += 1
    return users, missing


def peak_bytes(
    graph: Compact,
    order: Sequence[int],
    held: Iterable[int],
    kept: Iterable[int],
    memory: Memory | None = None,
) -> int:
    """Return the largest number of bytes alive at once when nodes run in this order.

    ``held`` are the storages alive before; those that are ``kept`` live to the end, others to their last reader. ``memory``
    is what nodes make and touch, if that is not what the joint graph's do.
    """
    sizes = graph.sizes
    made, touched = memory or graph.memory
    ends = bytearray(len(sizes))
    for storage in kept:
        ends[storage] = 1
    ending = [0] * (len(order) + 1)
    for rank in range(len(order) - 1, -1, -1):
        for storage in touched[order[rank]]:
            if not ends[storage]:
                ends[storage] = 1
                ending[rank] += sizes[storage]
    early = bytearray(len(sizes))
    current = 0
    for storage in held:
        early[storage] = 1
        current += sizes[storage] if ends[storage] else 0
    most = 0
    for rank, place in enumerate(order):
        for storage in made[place]:
            if not early[storage]:
                current += sizes[storage]
        most = max(most, current)
        current -= ending[rank]
    return most


_FIXED = (OpKind.RANDOM, OpKind.EFFECT, OpKind.COLLECTIVE)
"""Kinds whose order among themselves the program can observe."""


def candidates(graph: Compact, plan: Plan) -> Iterator[list[int]]:
    """Yield orders of the backward: the program's with recomputation late, then some that free early."""
    backward, needed = graph.backward, plan.runs
    own = [p for p in range(graph.count) if backward[p] and needed[p]]
    gradients = graph.gradients
    late = demand_order(graph, (*own, *gradients), needed)
    yield late
    kinds, nodes = graph.facts.kinds, graph.nodes
    if any(kinds[nodes[place]] in _FIXED for place in own):
        return
    kept = graph.storages_of((*graph.results, *gradients))
    memory = plan.in_backward(graph)
    yield eager_frees(graph, late, kept, memory)
    for roots in (gradients, gradients[::-1]):
        yield eager_frees(graph, demand_order(graph, roots, needed), kept, memory)


def best_order(graph: Compact, plan: Plan, enough: int = 0) -> tuple[list[int], int]:
    """Return the order of the backward with the lowest simulated peak, the first of equal ones, and that peak.

    A candidate whose peak is no more than ``enough`` ends the search.
    """
    held = graph.storages_of((*graph.results, *graph.tangents)) | plan.over(graph)
    memory = plan.in_backward(graph)
    kept = graph.storages_of((*graph.results, *graph.gradients))
    found: list[int] = []
    lowest = -1
    for order in candidates(graph, plan):
        peak = peak_bytes(graph, order, held, kept, memory)
        if lowest < 0 or peak < lowest:
            found, lowest = order, peak
        if lowest <= enough:
            break
    return found, max(lowest, 0)
