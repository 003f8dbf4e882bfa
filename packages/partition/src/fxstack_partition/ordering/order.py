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


# Limits: a forward is reordered only if the forward, not the backward, sets the peak of the step. Graphs with
# effects or communication keep their order.


def demand_order(
    graph: IndexGraph, roots: Iterable[int], needed: Sequence[int], drawn: Sequence[int] = ()
) -> list[int]:
    """Order the nodes whose entry in ``needed`` is 1, such that each node comes just before its first user.

    The walk goes depth first from ``roots``, in their order, so recomputation comes as late as possible. The
    ``getitem`` nodes of a node with several results follow the node directly, because results that are not
    taken yet stay alive. The random nodes ``drawn`` keep their order, because a generator's numbers depend on
    the order.
    """
    args, elements = _chained(graph.reversed_args, drawn), graph.elements
    missing = bytearray(needed)
    order: list[int] = []
    for root in roots:
        stack = [root]
        while stack:
            index = stack.pop()
            # ``~index`` marks the second visit, after all arguments.
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
    """Return the arguments of each node, with the preceding random node added to each node of ``drawn``."""
    if len(drawn) < 2:
        return args
    chained = list(args)
    for previous, index in pairwise(drawn):
        chained[index] = (*args[index], previous)
    return chained


_MANY = 1 << 60
"""The count of readers of a storage that lives to the end: it never falls to one."""


def eager_frees(
    graph: IndexGraph,
    order: Sequence[int],
    kept: Iterable[int],
    memory: Memory | None = None,
    drawn: Sequence[int] = (),
) -> list[int]:
    """Reorder nodes: a node that frees at least as much as it allocates runs as soon as its arguments exist.

    In the body, a node's rank is its position in ``order``, and ``growth`` has the bytes that running a node now
    would add to the live bytes. ``kept``: storages that live to the end. ``memory``: the storages of each node, if
    the plan changes them. The random nodes ``drawn`` keep their order.
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
    """Return for each storage the number of ranks that touch it, and the xor of these ranks.

    When one reader is left, the xor is its rank: no list of readers is needed.
    """
    readers, mix = [0] * count, [0] * count
    for storage in kept:
        readers[storage] = _MANY
    for rank, storages in enumerate(touched):
        for storage in storages:
            readers[storage] += 1
            mix[storage] ^= rank
    return readers, mix


def _among(args: Arguments, order: Sequence[int]) -> tuple[list[list[int]], list[int]]:
    """Return for each rank the ranks of its readers, and the number of its arguments that are in ``order``."""
    rank_of = [-1] * len(args)
    for rank, index in enumerate(order):
        rank_of[index] = rank
    users: list[list[int]] = [[] for _ in order]
    missing = [0] * len(order)
    for rank, index in enumerate(order):
        for arg in args[index]:
            producer = rank_of[arg]
            if producer >= 0:
                users[producer].append(rank)
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

    ``held``: storages alive before the first node. ``kept``: storages that live to the end; other storages live to
    their last reader. ``memory``: the storages of each node, if the plan changes them.
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
    peak = 0
    for rank, index in enumerate(order):
        for storage in allocated[index]:
            if not early[storage]:
                current += sizes[storage]
        peak = max(peak, current)
        current -= ending[rank]
    return peak


_FIXED = (OpKind.EFFECT, OpKind.COLLECTIVE)
"""Kinds for which a stage keeps the program's order: effects are observable, communication overlaps computation."""


def forward_order(graph: IndexGraph, plan: Plan, stop_at: int = 0) -> tuple[list[int], int]:
    """Return the forward's order with its simulated peak.

    If the program's order has a peak of at most ``stop_at`` (the backward's peak), return it. Otherwise
    return the candidate with the lowest peak.
    """
    needed = plan.forward(graph)
    is_input = graph.is_input
    for index in range(graph.count):
        needed[index] &= not is_input[index]
    saved = plan.saved_storages(graph)
    copies = saved.intersection(graph.copy_storages.values())
    outputs = graph.storages_of(graph.forward_outputs)
    kept = saved | outputs | set(graph.copy_storages.values())
    memory = plan.forward_memory(graph)

    # A generator: the orders after the first order that is low enough are never computed.
    def orders() -> Iterator[list[int]]:
        """Yield the candidates: the program's order, then orders that free memory early or compute late.

        Stages with effects keep the program's order.
        """
        program_order = [index for index in range(graph.count) if needed[index]]
        yield program_order
        drawn = _drawn(graph, program_order)
        if drawn is None:
            return
        yield eager_frees(graph, program_order, kept, memory, drawn)
        roots = (*graph.forward_outputs, *plan.saved_values, *program_order)
        for each in (roots, roots[::-1]):
            late = demand_order(graph, each, needed, drawn)
            yield late
            yield eager_frees(graph, late, kept, memory, drawn)

    return _lowest(orders(), lambda order: peak_bytes(graph, order, copies, kept, memory), stop_at)


def best_order(graph: IndexGraph, plan: Plan, stop_at: int = 0) -> tuple[list[int], int]:
    """Return the backward's order with the lowest simulated peak among the candidates, and this peak.

    The first candidate is the program's order with late recomputation. The search ends at the first peak of at most
    ``stop_at``, a lower bound. Of equal peaks the first candidate wins.
    """
    held = graph.storages_of((*graph.results, *graph.tangents)) | plan.saved_storages(graph)
    memory = plan.backward_memory(graph)
    kept = graph.storages_of((*graph.results, *graph.gradients))
    gradients = graph.gradients

    def orders() -> Iterator[list[int]]:
        """Yield the candidates: late recomputation first, then orders that go from gradient to gradient."""
        backward, needed = graph.backward, plan.runs
        program_order = [p for p in range(graph.count) if backward[p] and needed[p]]
        late = demand_order(graph, (*program_order, *gradients), needed)
        yield late
        drawn = _drawn(graph, program_order)
        if drawn is None:
            return
        yield eager_frees(graph, late, kept, memory, drawn)
        tried = [late]
        for roots in (gradients, gradients[::-1]):
            order = demand_order(graph, (*roots, *program_order), needed, drawn)
            if order not in tried:
                tried.append(order)
                yield eager_frees(graph, order, kept, memory, drawn)

    return _lowest(orders(), lambda order: peak_bytes(graph, order, held, kept, memory), stop_at)


def _drawn(graph: IndexGraph, program_order: Iterable[int]) -> list[int] | None:
    """Return the random nodes among ``program_order``, whose order must stay.

    None if the stage must keep the program's order.
    """
    kinds, nodes = graph.facts.kinds, graph.nodes
    if any(kinds[nodes[index]] in _FIXED for index in program_order):
        return None
    return [index for index in program_order if kinds[nodes[index]] is OpKind.RANDOM]


def _lowest(
    orders: Iterable[list[int]], peak_of: Callable[[list[int]], int], stop_at: int
) -> tuple[list[int], int]:
    """Return the first order with the lowest peak, and the peak. A peak of at most ``stop_at`` ends the search."""
    best: list[int] = []
    lowest = -1
    for order in orders:
        if order == best:
            continue
        peak = peak_of(order)
        if lowest < 0 or peak < lowest:
            best, lowest = order, peak
        if lowest <= stop_at:
            break
    return best, max(lowest, 0)
