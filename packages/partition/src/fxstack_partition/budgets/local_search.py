"""Choices between choices: values that one saves and another computes again are taken one by one.

A set of saved values stays valid when more are saved. Between a choice with few saved values and one with many lies a path of
such sets, on which the values come first that spare most seconds for their bytes. In the other direction those are given up first
that cost the fewest seconds for their bytes (path relinking: Glover, 1997; the greedy of the fractional knapsack).
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from itertools import accumulate
from typing import TYPE_CHECKING

from fxstack_partition.budgets.plan import make_plan

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from fxstack_partition.budgets.compact import Compact

Saved = tuple[int, ...]


def adding(graph: Compact, seconds: Sequence[float], few: Saved, many: Saved, share: float) -> Saved:
    """Return ``few`` with so much of what ``many`` has beyond it as makes up this share of the bytes."""
    extra = by_gain(graph, seconds, few, many)
    return tuple(sorted({*few, *extra[: _reaching(graph, extra, share)]}))


def giving_up(graph: Compact, seconds: Sequence[float], few: Saved, many: Saved, share: float) -> Saved:
    """Return ``many`` without what makes up this share of the bytes that it has more than ``few``."""
    least, most = (sum(_bytes(graph, place) for place in saved) for saved in (few, many))
    spared = by_loss(graph, seconds, many)
    weights = list(accumulate(_bytes(graph, place) for place in spared))
    count = bisect_left(weights, share * (most - least)) + 1
    return without(graph, many, spared[:count])


def without(graph: Compact, saved: Saved, places: Iterable[int]) -> Saved:
    """Return ``saved`` without these, and with the inputs from which they can be made again."""
    return tuple(sorted(graph.free.union(saved).difference(places)))


def _reaching(graph: Compact, places: Sequence[int], share: float) -> int:
    """Return how many of these values, at least one, make up this share of their bytes."""
    weights = list(accumulate(_bytes(graph, place) for place in places))
    return max(1, bisect_right(weights, share * weights[-1])) if weights else 0


def _bytes(graph: Compact, place: int) -> int:
    return 1 + sum(graph.sizes[s] for s in graph.handed_storages((place,)))


def by_gain(graph: Compact, seconds: Sequence[float], few: Saved, many: Sequence[int]) -> list[int]:
    """Return what ``many`` has beyond ``few``, most spared seconds for each byte first."""
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
    """Return the value and the recomputed ones before it that nothing else needs."""
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
    """Return what ``many`` can do without, fewest seconds to compute again for each byte first.

    Of equals the earliest: the backward needs it last, when the peak is over.
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
    """Return the value and all before it up to what is there already."""
    chain = [place]
    inside = {place}
    for member in chain:
        for arg in graph.args[member]:
            if not stops[arg] and arg not in inside:
                inside.add(arg)
                chain.append(arg)
    return chain
