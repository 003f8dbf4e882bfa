"""The frontier of memory against recomputation: the choices of saved values that no other choice beats.

The candidates do not depend on a budget, so budgets are monotone. There are three kinds of candidates. The
first are minimum cuts in which recomputation has a price: each cut is optimal for one exchange rate of
seconds and bytes. The second are the same cuts with checkpoints, between which the forward is recomputed
piece by piece (Chen et al., Training Deep Nets with Sublinear Memory Cost, 2016). The third are sets between
these choices. Each candidate is simulated with the order of its backward, unless a bound already shows that
another choice is better.
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
"""Numbers of pieces into which checkpoints divide the forward."""
ALLOWANCES = 24
"""Number of steps in which nodes that do not fuse are allowed to be recomputed: from none of them to all."""
MAX_NEIGHBOURS = 5
NEIGHBOUR_ROUNDS = 3
CHOICES_PER_ROUND = 8
"""Number of choices whose neighbours are tried before the gaps are sorted again."""
STEPS_TIMES_NODES = 40_000
MIN_STEPS = 16
"""Limits of the candidates that local search tries. On large graphs each candidate takes longer."""


def frontier(facts: JointFacts, options: PartitionOptions) -> tuple[Choice, ...]:
    """Return the choices that no other choice beats in both peak and cost, from highest to lowest peak."""
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
    _try_checkpoints(search, (cheap, priced), (0.0, middle))
    _try_allowances(search, priced, (0.0, middle))
    # Local search comes last, because it starts from the best choices of the cuts.
    _try_giving_up(search, priced.network)
    _try_between(search)
    _try_filling(search, priced.network)
    _try_neighbours(search, priced.network)
    return pareto_choices((*search.best, *search.product_choices), COSTS[options.cost])


def _candidate_limit(graph: IndexGraph) -> int:
    """Return the number of candidates that one local search may try."""
    return max(MIN_STEPS, STEPS_TIMES_NODES // max(1, graph.count))


def _try_checkpoints(search: Search, networks: tuple[PricedNetwork, ...], rates: tuple[float, ...]) -> None:
    """Offer cuts to ``search`` in which the values between equal pieces of the forward cost nothing to save.

    Equal sets of such values are tried once. ``rates``: prices of a recomputed second, in bytes.
    """
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


def _try_allowances(search: Search, cuts: PricedNetwork, rates: tuple[float, ...]) -> None:
    """Try cuts that may recompute a growing number of the nodes that do not fuse, cheapest nodes first.

    At one price, nodes of equal cost are all saved or all recomputed; these cuts lie between two prices.
    """
    for nodes in cuts.rankings:
        step = max(1, -(-len(nodes) // ALLOWANCES))
        for count in range(0, len(nodes) + step, step):
            for rate in rates:
                saved = cuts.cut(rate, barred=frozenset(nodes[count:]))
                search.consider(f"{count} allowed, rate {rate:g}", saved, cuts.network)


def _try_between(search: Search) -> None:
    """Try sets between neighbouring choices, widest gap first, until the limit of candidates."""
    graph, seconds = search.graph, search.seconds
    most, network = search.best[0].saved, search.best[-1].network
    tried: set[tuple[int, tuple[int, ...], tuple[int, ...], float]] = set()
    for _ in range(_candidate_limit(graph)):
        gaps = sorted(pairwise(search.best), key=_area_of_gap)
        candidates = (
            (way, low.saved, many, share)
            for share in SHARES
            for high, low in gaps
            for many in (high.saved, most)
            for way in range(len(WAYS))
            if (way, low.saved, many, share) not in tried
        )
        chosen = next(candidates, None)
        if chosen is None:
            return
        tried.add(chosen)
        way, few, many, share = chosen
        search.consider("between", WAYS[way](graph, seconds, few, many, share), network)


WAYS = (extend_choice, shrink_choice)
SHARES = (0.5, 0.25, 0.75)


def _area_of_gap(gap: tuple[Choice, Choice]) -> float:
    high, low = gap
    return (low.peak - high.peak) * (low.seconds - high.seconds)


def _try_giving_up(search: Search, network: Network) -> None:
    """From the choice with the least recomputation, give up saved values one by one, cheapest value first.

    The first walk orders values by seconds, the second walk by products.
    """
    graph = search.graph
    most = _candidate_limit(graph)
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


def _try_neighbours(search: Search, network: Network) -> None:
    """Try each choice with one saved value less or more, choices at the widest gaps first."""
    graph, seconds = search.graph, search.seconds
    allowance = NEIGHBOUR_ROUNDS * _candidate_limit(graph)
    tried: set[tuple[int, ...]] = set()
    while allowance > 0:
        new = [choice for choice in _choices_by_gaps(search) if choice.saved not in tried]
        if not new:
            return
        for choice in new[:CHOICES_PER_ROUND]:
            saved = choice.saved
            tried.add(saved)
            recomputed = make_plan(graph, saved).repeated(graph)
            addable = [index for index in recomputed if graph.nodes[index] in network.savable]
            less = _unlike_values(search, rank_removals(graph, seconds, saved))
            more = _unlike_values(search, rank_additions(graph, seconds, saved, addable))
            for index in less:
                search.consider("one less", drop_values(graph, saved, (index,)), network)
            for index in more:
                search.consider("one more", (*saved, index), network)
            allowance -= len(less) + len(more)


def _choices_by_gaps(search: Search) -> list[Choice]:
    """Return the choices whose neighbours are tried: those beside the widest gaps first, product choices last."""
    gaps = sorted(pairwise(search.best), key=_area_of_gap)
    ordered = dict.fromkeys(choice.saved for gap in gaps for choice in gap)
    by_saved = {choice.saved: choice for choice in search.best}
    return [*(by_saved[saved] for saved in ordered), *search.product_choices]


def _unlike_values(search: Search, indices: list[int]) -> list[int]:
    """Return the first few of these values, one value for each pair of cost and size.

    Layers of a model are alike, so other values with the same cost and size would give similar choices.
    """
    graph = search.graph
    values: dict[tuple[int, float], int] = {}
    for index in indices:
        storages = graph.saved_storages((index,))
        values.setdefault((sum(graph.sizes[s] for s in storages), search.seconds[index]), index)
        if len(values) == MAX_NEIGHBOURS:
            break
    return list(values.values())


def _try_filling(search: Search, network: Network) -> None:
    """Try each choice with more saved values at the same peak: saving a value that is dead at the peak costs
    nothing.
    """
    graph, seconds = search.graph, search.seconds
    allowance = _candidate_limit(graph)
    for choice in search.best:
        saved, peak = choice.saved, choice.peak
        recomputed = make_plan(graph, saved).repeated(graph)
        gains = rank_additions(
            graph, seconds, saved, [p for p in recomputed if graph.nodes[p] in network.savable]
        )
        for index in gains[: allowance // len(search.best)]:
            plan = make_plan(graph, (*saved, index))
            if peak_of_plan(graph, plan) <= peak:
                saved = plan.saved_values
        if saved != choice.saved:
            search.consider("filled", saved, choice.network)
