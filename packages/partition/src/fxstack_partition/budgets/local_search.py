"""Local search between two choices: exchange values that the first saves and the second recomputes.

A set of saved values stays valid if more values are saved. So a path of valid sets leads from a choice with
few saved values to a choice with many. The walk to more saved values adds the values first that save the most
seconds per byte. The walk to fewer saved values drops the values first that cost the fewest seconds per byte
(path relinking: Glover, 1997; the greedy of the fractional knapsack).
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
    """Return ``few`` with the best values of ``many``.

    The values hold at most ``share`` of the bytes that ``many`` adds to ``few``, but one value is always
    added.
    """
    extra = rank_additions(graph, seconds, few, many)
    return tuple(sorted({*few, *extra[: _count_for_share(graph, extra, share)]}))


def shrink_choice(
    graph: IndexGraph, seconds: Sequence[float], few: Saved, many: Saved, share: float
) -> Saved:
    """Return ``many`` without its cheapest values.

    The dropped values hold at least ``share`` of the bytes that ``many`` has more than ``few``.
    """
    least, most = (sum(_saved_bytes(graph, index) for index in saved) for saved in (few, many))
    spared = rank_removals(graph, seconds, many)
    weights = list(accumulate(_saved_bytes(graph, index) for index in spared))
    count = bisect_left(weights, share * (most - least)) + 1
    return drop_values(graph, many, spared[:count])


def drop_values(graph: IndexGraph, saved: Saved, indices: Iterable[int]) -> Saved:
    """Return ``saved`` without the values ``indices``, and with all free inputs, which recomputation may read."""
    return tuple(sorted(graph.free_inputs.union(saved).difference(indices)))


def _count_for_share(graph: IndexGraph, indices: Sequence[int], share: float) -> int:
    """Return how many leading values hold at most ``share`` of the bytes of all values.

    The number is at least one, or 0 if there are no values.
    """
    weights = list(accumulate(_saved_bytes(graph, index) for index in indices))
    return max(1, bisect_right(weights, share * weights[-1])) if weights else 0


def _saved_bytes(graph: IndexGraph, index: int) -> int:
    return 1 + sum(graph.sizes[s] for s in graph.saved_storages((index,)))


def rank_additions(graph: IndexGraph, seconds: Sequence[float], few: Saved, many: Sequence[int]) -> list[int]:
    """Return the values of ``many`` whose saving shortens the recomputation of ``few``, most seconds per byte first."""
    recomputed = bytearray(graph.count)
    for index in make_plan(graph, few).repeated(graph):
        recomputed[index] = 1
    already_saved = set(few)
    gains: dict[int, float] = {}
    for index in many:
        if index not in already_saved and recomputed[index]:
            spared = sum(seconds[p] for p in _exclusive_ancestors(graph, index, recomputed))
            gains[index] = spared / _saved_bytes(graph, index)
    return sorted(gains, key=lambda index: (-gains[index], index))


def _exclusive_ancestors(graph: IndexGraph, index: int, recomputed: bytearray) -> list[int]:
    """Return the value and the recomputed values that only it needs. If the value is saved, none of them runs."""
    chain = [index]
    inside = {index}
    for member in chain:
        for arg in graph.args[member]:
            if recomputed[arg] and arg not in inside:
                readers = (user for user in graph.users[arg] if recomputed[user])
                if all(user in inside for user in readers):
                    inside.add(arg)
                    chain.append(arg)
    return chain


def rank_removals(graph: IndexGraph, seconds: Sequence[float], many: Saved) -> list[int]:
    """Return the values that ``many`` can recompute instead of save, fewest seconds per byte first.

    Of values with equal cost the earliest comes first: the backward needs it last, after the peak.
    """
    plan = make_plan(graph, many)
    stops = bytearray(plan.needed)
    for index in (*plan.saved_values, *graph.free_inputs):
        stops[index] = 1
    losses: dict[int, float] = {}
    for index in plan.saved_values:
        if index in graph.free_inputs:
            continue
        ancestors = _ancestors(graph, index, stops)
        if not any(graph.runs_once[p] for p in ancestors):
            losses[index] = sum(seconds[p] for p in ancestors) / _saved_bytes(graph, index)
    return sorted(losses, key=lambda index: (losses[index], index))


def _ancestors(graph: IndexGraph, index: int, stops: bytearray) -> list[int]:
    """Return the value and its ancestors that the backward would recompute, up to the marked ``stops``."""
    chain = [index]
    inside = {index}
    for member in chain:
        for arg in graph.args[member]:
            if not stops[arg] and arg not in inside:
                inside.add(arg)
                chain.append(arg)
    return chain
