"""The trade between memory and recomputation: a family of partitions, the best of them at each peak.

The family does not depend on a budget, so that budgets are monotone. Its members are minimum cuts in which
recomputation has a price (each is optimal for one exchange rate of seconds and bytes), alone and with
checkpoints after which the forward is recomputed in pieces (Chen et al., Training Deep Nets with Sublinear
Memory Cost, 2016), and sets between these. Each member is simulated, with the order of its backward, unless a
bound already shows that another member is better.
"""

from __future__ import annotations

from itertools import pairwise

from fxstack_partition.budgets.lagrangian_sweep import PricedNetwork, sweep_rates
from fxstack_partition.budgets.local_search import (
    drop_values,
    extend_choice,
    rank_additions,
    rank_removals,
    shrink_choice,
)
from fxstack_partition.budgets.search import COSTS, Choice, Search, pareto_choices, peak_of_plan
from fxstack_partition.budgets.segments import Segments
from fxstack_partition.joint.index_graph import IndexGraph
from fxstack_partition.joint.joint import JointFacts
from fxstack_partition.mincut.network import Network
from fxstack_partition.options import PartitionOptions
from fxstack_partition.ordering.plan import make_plan
from fxstack_partition.policy.policy import BUDGET_RULES, MIN_CUT_RULES, SAVE_ALL_RULES

# Limits: peaks are kept and monotone, not proven lowest.

MAX_HULL_CUTS = 14
PIECES = (2, 3, 4, 6, 8, 12, 16, 24, 32)
ALLOWANCES = 24
MAX_NEIGHBOURS = 5
NEIGHBOUR_ROUNDS = 3
CHOICES_PER_ROUND = 8
"""The number of choices that are examined before gaps are sorted again."""
STEPS_TIMES_NODES = 40_000
MIN_STEPS = 16
"""Bounds on the number of sets that are tried between choices: on large graphs each takes longer."""


def frontier(facts: JointFacts, options: PartitionOptions) -> tuple[Choice, ...]:
    """Return the choices that no other beats in both peak and cost, from highest to lowest peak."""
    search = Search(facts, options)
    saving, cheap, priced = (
        PricedNetwork(facts, rules, options, search.costs)
        for rules in (SAVE_ALL_RULES, MIN_CUT_RULES, BUDGET_RULES)
    )
    for label, ends in (("save_all", saving), ("min_cut", cheap)):
        search.consider(label, ends.cut(0.0), ends.network)
    rates = []
    for rate, saved in sweep_rates(priced, search.weigh, MAX_HULL_CUTS):
        rates.append(rate)
        search.consider(f"rate {rate:g}", saved, priced.network)
    middle = sorted(rates)[len(rates) // 2]
    _pieces(search, (cheap, priced), (0.0, middle))
    _allowances(search, priced, (0.0, middle))
    _descend(search, priced.network)
    _between(search)
    _fill(search, priced.network)
    _step(search, priced.network)
    return pareto_choices((*search.best, *search.product_choices), COSTS[options.cost])


def _steps_for(graph: IndexGraph) -> int:
    """Return the number of sets that may be tried between choices."""
    return max(MIN_STEPS, STEPS_TIMES_NODES // max(1, graph.count))


def _pieces(search: Search, networks: tuple[PricedNetwork, ...], rates: tuple[float, ...]) -> None:
    seen = set()
    segments = Segments(search.graph)
    for count in PIECES:
        granted = segments.checkpoints(count)
        if granted and granted not in seen:
            seen.add(granted)
            for cuts in networks:
                for rate in rates:
                    label = f"{count} pieces, rate {rate:g}"
                    search.consider(label, cuts.cut(rate, granted), cuts.network)


def _allowances(search: Search, cuts: PricedNetwork, rates: tuple[float, ...]) -> None:
    """Allow recomputation of more and more nodes that do not fuse, first those with few seconds per byte.

    A price treats nodes of equal cost equally; this search also finds sets between two prices.
    """
    for nodes in cuts.rankings:
        step = max(1, -(-len(nodes) // ALLOWANCES))
        for count in range(0, len(nodes) + step, step):
            for rate in rates:
                saved = cuts.cut(rate, barred=frozenset(nodes[count:]))
                search.consider(f"{count} allowed, rate {rate:g}", saved, cuts.network)


def _between(search: Search) -> None:
    """Try sets between neighbours, widest gap first, until the allowance is used or no gap is left."""
    graph, seconds = search.graph, search.seconds
    most, network = search.best[0].saved, search.best[-1].network
    tried: set[tuple[int, tuple[int, ...], tuple[int, ...], float]] = set()
    for _ in range(_steps_for(graph)):
        gaps = sorted(pairwise(search.best), key=_area)
        ways = (
            (way, low.saved, many, share)
            for share in SHARES
            for high, low in gaps
            for many in (high.saved, most)
            for way in range(len(WAYS))
            if (way, low.saved, many, share) not in tried
        )
        chosen = next(ways, None)
        if chosen is None:
            return
        tried.add(chosen)
        way, few, many, share = chosen
        search.consider("between", WAYS[way](graph, seconds, few, many, share), network)


WAYS = (extend_choice, shrink_choice)
SHARES = (0.5, 0.25, 0.75)


def _area(gap: tuple[Choice, Choice]) -> float:
    high, low = gap
    return (low.peak - high.peak) * (low.seconds - high.seconds)


def _descend(search: Search, network: Network) -> None:
    """Give up values one by one, beginning with the least recomputation: by seconds, then by products."""
    graph = search.graph
    most = _steps_for(graph)
    products_first = [p + s for p, s in zip(search.products, search.seconds, strict=True)]
    for weights in (search.seconds, products_first):
        saved = search.best[0].saved
        step = 0
        for _ in range(most):
            indices = rank_removals(graph, weights, saved)
            step = step or -(-len(indices) // most)
            if not indices:
                break
            saved = drop_values(graph, saved, indices[:step])
            search.consider("descent", saved, network)


def _step(search: Search, network: Network) -> None:
    """Try neighbours of each choice with one saved value less or more, widest gaps first."""
    graph, seconds = search.graph, search.seconds
    allowance = NEIGHBOUR_ROUNDS * _steps_for(graph)
    done: set[tuple[int, ...]] = set()
    while allowance > 0:
        new = [choice for choice in _by_gaps(search) if choice.saved not in done]
        if not new:
            return
        for choice in new[:CHOICES_PER_ROUND]:
            saved = choice.saved
            done.add(saved)
            again = make_plan(graph, saved).repeated(graph)
            offered = [index for index in again if graph.nodes[index] in network.savable]
            less = _unlike(search, rank_removals(graph, seconds, saved))
            more = _unlike(search, rank_additions(graph, seconds, saved, offered))
            for index in less:
                search.consider("one less", drop_values(graph, saved, (index,)), network)
            for index in more:
                search.consider("one more", (*saved, index), network)
            allowance -= len(less) + len(more)


def _by_gaps(search: Search) -> list[Choice]:
    """Return the best choices, those at the widest gaps first, then the choices aside."""
    gaps = sorted(pairwise(search.best), key=_area)
    beside = dict.fromkeys(choice.saved for gap in gaps for choice in gap)
    by_saved = {choice.saved: choice for choice in search.best}
    return [*(by_saved[saved] for saved in beside), *search.product_choices]


def _unlike(search: Search, indices: list[int]) -> list[int]:
    """Return the first few of these values, one for each cost and size, because layers are alike."""
    graph = search.graph
    found: dict[tuple[int, float], int] = {}
    for index in indices:
        storages = graph.saved_storages((index,))
        found.setdefault((sum(graph.sizes[s] for s in storages), search.seconds[index]), index)
        if len(found) == MAX_NEIGHBOURS:
            break
    return list(found.values())


def _fill(search: Search, network: Network) -> None:
    """Save more values if the peak does not grow: a value that is not alive at the peak is free."""
    graph, seconds = search.graph, search.seconds
    allowance = _steps_for(graph)
    for choice in search.best:
        saved, peak = choice.saved, choice.peak
        again = make_plan(graph, saved).repeated(graph)
        gains = rank_additions(graph, seconds, saved, [p for p in again if graph.nodes[p] in network.savable])
        for index in gains[: allowance // len(search.best)]:
            plan = make_plan(graph, (*saved, index))
            if peak_of_plan(graph, plan) <= peak:
                saved = plan.saved_values
        if saved != choice.saved:
            search.consider("filled", saved, choice.network)
