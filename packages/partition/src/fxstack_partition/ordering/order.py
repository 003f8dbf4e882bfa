"""Choose the order of a stage's nodes by the bytes that are alive at once.

A forward keeps the program's order unless another order lowers the peak of the step. Three ideas give the
candidates. Recomputation comes as late as possible (``demand_order``). The roots are visited in the joint
graph's order, gradient by gradient, or in reverse. And a node that frees at least as much as it allocates
runs as soon as possible (``eager_frees``): gradients of parameters, casts, sums. The best candidate depends
on the model, so each is simulated. Random operators keep their order among themselves. A stage with effects
or communication keeps the program's order.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from heapq import heapify, heappop, heappush
from itertools import pairwise

from fxstack_partition.joint.index_graph import IndexGraph, Memory
from fxstack_partition.joint.ops import OpKind
from fxstack_partition.ordering.plan import Plan

Arguments = Sequence[tuple[int, ...]]


# Limits: a forward is reordered only if it, and not its backward, sets the peak. Graphs with effects or
# communication keep their order.


def demand_order(
    graph: IndexGraph, roots: Iterable[int], needed: Sequence[int], drawn: Sequence[int] = ()
) -> list[int]:
    """Order the nodes that are ``needed`` (1 for each) such that each comes just before its first user.

    ``roots`` are visited in the given order, so recomputed values come as late as possible. The elements of a
    multiple result follow it directly, because unread elements live until the last one is taken. The nodes
    ``drawn`` keep their order among themselves.
    """
    args, elements = _chained(graph.reversed_args, drawn), graph.elements
    missing = bytearray(needed)
    order: list[int] = []
    for root in roots:
        stack = [root]
        while stack:
            index = stack.pop()
            if index < 0:
                for allocated in (~index, *elements.get(~index, ())):
                    if missing[allocated]:
                        missing[allocated] = 0
                        order.append(allocated)
            elif missing[index]:
                stack.append(~index)
                stack += [arg for arg in args[index] if missing[arg]]
    return order


def _chained(args: Arguments, drawn: Sequence[int]) -> Arguments:
    """Return the arguments of each node; each node of ``drawn`` also has the one before it as argument."""
    if len(drawn) < 2:
        return args
    chained = list(args)
    for before, index in pairwise(drawn):
        chained[index] = (*args[index], before)
    return chained


_MANY = 1 << 60


def eager_frees(
    graph: IndexGraph,
    order: Sequence[int],
    kept: Iterable[int],
    memory: Memory | None = None,
    drawn: Sequence[int] = (),
) -> list[int]:
    """Reorder: a node that frees at least as much as it allocates runs as soon as possible.

    Nodes are known by their rank in ``order``. ``growth``: the bytes that running a node now would add to the
    live bytes. ``memory``: the storages that nodes make and touch, if different from the joint graph's. The
    nodes ``drawn`` keep their order among themselves.
    """
    count, sizes = len(order), graph.sizes
    allocated, touches = memory or graph.memory
    touched = [touches[index] for index in order]
    readers, mix = _readers_ahead(touched, len(sizes), kept)
    growth = [sum(sizes[s] for s in allocated[index]) for index in order]
    for storage, ahead in enumerate(readers):
        if ahead == 1:
            growth[mix[storage]] -= sizes[storage]
    users, missing = _among(_chained(graph.args, drawn), order)
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
    """Return for each storage the number of ranks that touch it, and the xor of these ranks."""
    readers, mix = [0] * count, [0] * count
    for storage in kept:
        readers[storage] = _MANY
    for rank, storages in enumerate(touched):
        for storage in storages:
            readers[storage] += 1
            mix[storage] ^= rank
    return readers, mix


def _among(args: Arguments, order: Sequence[int]) -> tuple[list[list[int]], list[int]]:
    """Return for each rank the ranks that read it, and the number of its arguments with a rank."""
    rank_of = [-1] * len(args)
    for rank, index in enumerate(order):
        rank_of[index] = rank
    users: list[list[int]] = [[] for _ in order]
    missing = [0] * len(order)
    for rank, index in enumerate(order):
        for arg in args[index]:
            before = rank_of[arg]
            if before >= 0:
                users[before].append(rank)
                missing[rank] += 1
    return users, missing


def peak_bytes(
    graph: IndexGraph,
    order: Sequence[int],
    held: Iterable[int],
    kept: Iterable[int],
    memory: Memory | None = None,
) -> int:
    """Return the largest number of bytes alive at once if nodes run in this order.

    ``held``: the storages alive before. ``kept``: storages that live to the end; others live to their last
    reader. ``memory``: the storages that nodes make and touch, if different from the joint graph's.
    """
    sizes = graph.sizes
    allocated, touched = memory or graph.memory
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
    for rank, index in enumerate(order):
        for storage in allocated[index]:
            if not early[storage]:
                current += sizes[storage]
        most = max(most, current)
        current -= ending[rank]
    return most


_FIXED = (OpKind.EFFECT, OpKind.COLLECTIVE)
"""Kinds that fix the whole order: effects write to memory, communication overlaps computation."""


def forward_order(graph: IndexGraph, plan: Plan, stop_at: int = 0) -> tuple[list[int], int]:
    """Return the forward's order and its simulated peak: the program's, or the best if over ``stop_at``."""
    needed = plan.forward(graph)
    given = graph.is_input
    for index in range(graph.count):
        needed[index] &= not given[index]
    handed = plan.saved_storages(graph)
    copies = handed.intersection(graph.copy_storages.values())
    leaving = graph.storages_of(graph.forward_outputs)
    kept = handed | leaving | set(graph.copy_storages.values())
    memory = plan.forward_memory(graph)

    def orders() -> Iterator[list[int]]:
        own = [index for index in range(graph.count) if needed[index]]
        yield own
        drawn = _drawn(graph, own)
        if drawn is None:
            return
        yield eager_frees(graph, own, kept, memory, drawn)
        roots = (*graph.forward_outputs, *plan.saved_values, *own)
        for each in (roots, roots[::-1]):
            late = demand_order(graph, each, needed, drawn)
            yield late
            yield eager_frees(graph, late, kept, memory, drawn)

    return _lowest(orders(), lambda order: peak_bytes(graph, order, copies, kept, memory), stop_at)


def best_order(graph: IndexGraph, plan: Plan, stop_at: int = 0) -> tuple[list[int], int]:
    """Return the backward order with the lowest simulated peak (the first of equal ones), and this peak.

    The first candidate is the program's order with late recomputation. A peak of at most ``stop_at`` ends the
    search.
    """
    held = graph.storages_of((*graph.results, *graph.tangents)) | plan.saved_storages(graph)
    memory = plan.backward_memory(graph)
    kept = graph.storages_of((*graph.results, *graph.gradients))
    gradients = graph.gradients

    def orders() -> Iterator[list[int]]:
        backward, needed = graph.backward, plan.runs
        own = [p for p in range(graph.count) if backward[p] and needed[p]]
        late = demand_order(graph, (*own, *gradients), needed)
        yield late
        drawn = _drawn(graph, own)
        if drawn is None:
            return
        yield eager_frees(graph, late, kept, memory, drawn)
        tried = [late]
        for roots in (gradients, gradients[::-1]):
            order = demand_order(graph, (*roots, *own), needed, drawn)
            if order not in tried:
                tried.append(order)
                yield eager_frees(graph, order, kept, memory, drawn)

    return _lowest(orders(), lambda order: peak_bytes(graph, order, held, kept, memory), stop_at)


def _drawn(graph: IndexGraph, own: Iterable[int]) -> list[int] | None:
    """Return the random nodes among ``own``; None if the order must stay."""
    kinds, nodes = graph.facts.kinds, graph.nodes
    if any(kinds[nodes[index]] in _FIXED for index in own):
        return None
    return [index for index in own if kinds[nodes[index]] is OpKind.RANDOM]


def _lowest(
    orders: Iterable[list[int]], peak_of: Callable[[list[int]], int], stop_at: int
) -> tuple[list[int], int]:
    """Return the first order with the lowest peak. A peak of at most ``stop_at`` ends the search."""
    found: list[int] = []
    lowest = -1
    for order in orders:
        if order == found:
            continue
        peak = peak_of(order)
        if lowest < 0 or peak < lowest:
            found, lowest = order, peak
        if lowest <= stop_at:
            break
    return found, max(lowest, 0)
