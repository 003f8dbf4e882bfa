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

from fxstack_partition.joint.index_graph import Compact
from fxstack_partition.ordering.plan import make_plan

Saved = tuple[int, ...]


def adding(graph: Compact, seconds: Sequence[float], few: Saved, many: Saved, share: float) -> Saved:
    """Return ``few`` with values of ``many`` that make up this share of the bytes of the difference."""
    extra = by_gain(graph, seconds, few, many)
    return tuple(sorted({*few, *extra[: _reaching(graph, extra, share)]}))


def giving_up(graph: Compact, seconds: Sequence[float], few: Saved, many: Saved, share: float) -> Saved:
    """Return ``many`` without values that make up this share of the bytes of the difference."""
    least, most = (sum(_bytes(graph, place) for place in saved) for saved in (few, many))
    spared = by_loss(graph, seconds, many)
    weights = list(accumulate(_bytes(graph, place) for place in spared))
    count = bisect_left(weights, share * (most - least)) + 1
    return without(graph, many, spared[:count])


def without(graph: Compact, saved: Saved, places: Iterable[int]) -> Saved:
    """Return ``saved`` without these values, and with the inputs from which they can be recomputed."""
    return tuple(sorted(graph.free.union(saved).difference(places)))


def _reaching(graph: Compact, places: Sequence[int], share: float) -> int:
    """Return how many of these values (at least one) make up this share of their bytes."""
    weights = list(accumulate(_bytes(graph, place) for place in places))
    return max(1, bisect_right(weights, share * weights[-1])) if weights else 0


def _bytes(graph: Compact, place: int) -> int:
    return 1 + sum(graph.sizes[s] for s in graph.handed_storages((place,)))


def by_gain(graph: Compact, seconds: Sequence[float], few: Saved, many: Sequence[int]) -> list[int]:
    """Return the values of ``many`` that ``few`` lacks, most saved seconds per byte first."""
    again = bytearray(graph.count)
    for place in make_plan(graph, few).repeated(graph):
        again[place] = 1
    known = set(few)
    gains: dict[int, float] = {}
    for place in many:
        if place not in known and again[place]:
            spared = sum(seconds[p] for p in _chain(graph, place, again))
            gains[place] = spared / _bytes(graph, place)
    return sorted(gains, key=lambda place: (-gains[place], place))


def _chain(graph: Compact, place: int, again: bytearray) -> list[int]:
    """Return the value and the recomputed values before it that no other node needs."""
    chain = [place]
    inside = {place}
    for member in chain:
        for arg in graph.args[member]:
            if again[arg] and arg not in inside:
                readers = (user for user in graph.users[arg] if again[user])
                if all(user in inside for user in readers):
                    inside.add(arg)
                    chain.append(arg)
    return chain


def by_loss(graph: Compact, seconds: Sequence[float], many: Saved) -> list[int]:
    """Return the values that ``many`` can give up, fewest seconds of recomputation per byte first.

    Of equal values the earliest comes first: the backward needs it last, after the peak.
    """
    plan = make_plan(graph, many)
    stops = bytearray(plan.needed)
    for place in (*plan.handed, *graph.free):
        stops[place] = 1
    losses: dict[int, float] = {}
    for place in plan.handed:
        if place in graph.free:
            continue
        before = _back_to(graph, place, stops)
        if not any(graph.once[p] for p in before):
            losses[place] = sum(seconds[p] for p in before) / _bytes(graph, place)
    return sorted(losses, key=lambda place: (losses[place], place))


def _back_to(graph: Compact, place: int, stops: bytearray) -> list[int]:
    """Return the value and all values before it, back to available ones."""
    chain = [place]
    inside = {place}
    for member in chain:
        for arg in graph.args[member]:
            if not stops[arg] and arg not in inside:
                inside.add(arg)
                chain.append(arg)
    return chain
