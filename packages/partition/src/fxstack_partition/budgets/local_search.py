"""Choices between two choices: values that one choice saves and another recomputes are exchanged one by one.

A set of saved values stays valid if more values are saved. So a path of valid sets leads from a choice with
few saved values to a choice with many. In this direction values that save most seconds per byte come first;
in the other direction values that cost the fewest seconds per byte are given up first (path relinking:
Glover, 1997; the greedy of the fractional knapsack).
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Iterable, Sequence
from itertools import accumulate

from fxstack_partition.joint.index_graph import IndexGraph
from fxstack_partition.ordering.plan import make_plan

Saved = tuple[int, ...]


def extend_choice(
    graph: IndexGraph, seconds: Sequence[float], few: Saved, many: Saved, share: float
) -> Saved:
    """Return ``few`` with values of ``many`` that make up this share of the bytes of the difference."""
    extra = rank_additions(graph, seconds, few, many)
    return tuple(sorted({*few, *extra[: _reaching(graph, extra, share)]}))


def shrink_choice(
    graph: IndexGraph, seconds: Sequence[float], few: Saved, many: Saved, share: float
) -> Saved:
    """Return ``many`` without values that make up this share of the bytes of the difference."""
    least, most = (sum(_bytes(graph, index) for index in saved) for saved in (few, many))
    spared = rank_removals(graph, seconds, many)
    weights = list(accumulate(_bytes(graph, index) for index in spared))
    count = bisect_left(weights, share * (most - least)) + 1
    return drop_values(graph, many, spared[:count])


def drop_values(graph: IndexGraph, saved: Saved, indices: Iterable[int]) -> Saved:
    """Return ``saved`` without these values, and with the inputs from which they can be recomputed."""
    return tuple(sorted(graph.free_inputs.union(saved).difference(indices)))


def _reaching(graph: IndexGraph, indices: Sequence[int], share: float) -> int:
    """Return how many of these values (at least one) make up this share of their bytes."""
    weights = list(accumulate(_bytes(graph, index) for index in indices))
    return max(1, bisect_right(weights, share * weights[-1])) if weights else 0


def _bytes(graph: IndexGraph, index: int) -> int:
    return 1 + sum(graph.sizes[s] for s in graph.saved_storages((index,)))


def rank_additions(graph: IndexGraph, seconds: Sequence[float], few: Saved, many: Sequence[int]) -> list[int]:
    """Return the values of ``many`` that ``few`` lacks, most saved seconds per byte first."""
    again = bytearray(graph.count)
    for index in make_plan(graph, few).repeated(graph):
        again[index] = 1
    known = set(few)
    gains: dict[int, float] = {}
    for index in many:
        if index not in known and again[index]:
            spared = sum(seconds[p] for p in _chain(graph, index, again))
            gains[index] = spared / _bytes(graph, index)
    return sorted(gains, key=lambda index: (-gains[index], index))


def _chain(graph: IndexGraph, index: int, again: bytearray) -> list[int]:
    """Return the value and the recomputed values before it that no other node needs."""
    chain = [index]
    inside = {index}
    for member in chain:
        for arg in graph.args[member]:
            if again[arg] and arg not in inside:
                readers = (user for user in graph.users[arg] if again[user])
                if all(user in inside for user in readers):
                    inside.add(arg)
                    chain.append(arg)
    return chain


def rank_removals(graph: IndexGraph, seconds: Sequence[float], many: Saved) -> list[int]:
    """Return the values that ``many`` can give up, fewest seconds of recomputation per byte first.

    Of equal values the earliest comes first: the backward needs it last, after the peak.
    """
    plan = make_plan(graph, many)
    stops = bytearray(plan.needed)
    for index in (*plan.saved_values, *graph.free_inputs):
        stops[index] = 1
    losses: dict[int, float] = {}
    for index in plan.saved_values:
        if index in graph.free_inputs:
            continue
        before = _back_to(graph, index, stops)
        if not any(graph.runs_once[p] for p in before):
            losses[index] = sum(seconds[p] for p in before) / _bytes(graph, index)
    return sorted(losses, key=lambda index: (losses[index], index))


def _back_to(graph: IndexGraph, index: int, stops: bytearray) -> list[int]:
    """Return the value and all values before it, back to available ones."""
    chain = [index]
    inside = {index}
    for member in chain:
        for arg in graph.args[member]:
            if not stops[arg] and arg not in inside:
                inside.add(arg)
                chain.append(arg)
    return chain
