"""The trade between memory and recomputation: a family of partitions, of which the best at each peak are kept.

The family does not depend on a budget; that is what makes budgets monotone. Its members are minimum cuts in which
recomputation has a price (each is optimal for one exchange rate of seconds and bytes), alone and together with
checkpoints after which the forward is run again piece by piece (Chen et al., Training Deep Nets with Sublinear
Memory Cost, 2016), and sets between them. Each member is simulated, backward order included, unless what is known of it
before shows that another is better.
"""

from __future__ import annotations

from dataclasses import dataclass
from itertools import pairwise
from typing import TYPE_CHECKING

from fxstack_partition.compact import Compact
from fxstack_partition.extract import extract
from fxstack_partition.order import best_order, peak_bytes
from fxstack_partition.plan import Plan, make_plan, settled
from fxstack_partition.policy import BUDGET_RULES, MIN_CUT_RULES, SAVE_ALL_RULES
from fxstack_partition.prices import PricedNetwork, hull
from fxstack_partition.relink import adding, by_gain, by_loss, giving_up
from fxstack_partition.segments import Segments
from fxstack_partition.simulate import simulate
from fxstack_partition.work import WorkModel

if TYPE_CHECKING:
    from collections.abc import Iterable

    from fxstack_partition.joint import JointFacts
    from fxstack_partition.network import Network
    from fxstack_partition.options import PartitionOptions


@dataclass(frozen=True, slots=True)
class Choice:
    """One member of the family: what it saves, its simulated peak, the estimated seconds of recomputation."""

    label: str
    saved: tuple[int, ...]
    peak: int
    seconds: float
    network: Network

    @property
    def reasons(self) -> tuple[tuple[str, str], ...]:
        """Return the rule that decided about each node."""
        return self.network.reasons


HULL_CUTS = 14
PIECES = (2, 3, 4, 6, 8, 12, 16, 24, 32)
ALLOWANCES = 24
NEIGHBOURS = 3
EXTRACTIONS = 12
"""How many choices are simulated as graphs, where numbers give a bound alone."""
STEPS_TIMES_NODES = 40_000
LEAST_STEPS = 16
"""Bounds on the sets that are tried between choices: large graphs take longer for each."""


class Search:
    """The choices found so far that no other beats in both peak and time."""

    def __init__(self, facts: JointFacts, options: PartitionOptions) -> None:
        self.facts = facts
        self._options = options
        self.graph = Compact(facts, options)
        self.costs = WorkModel(facts.graph, options)
        self.seconds = [
            self.costs.of(node).seconds if self.graph.forward[place] else 0.0
            for place, node in enumerate(self.graph.nodes)
        ]
        self.best: list[Choice] = []
        self._seen: set[tuple[int, ...]] = set()
        self._extractions = 0

    def weigh(self, saved: tuple[int, ...]) -> tuple[float, float]:
        """Return the bytes of what is saved, and the seconds of recomputation."""
        plan = make_plan(self.graph, saved)
        return sum(self.graph.sizes[s] for s in plan.over(self.graph)), self._spent(plan)

    def _spent(self, plan: Plan) -> float:
        seconds = self.seconds
        return sum(seconds[place] for place in plan.repeated(self.graph))

    def consider(self, label: str, saved: Iterable[int], network: Network) -> None:
        """Simulate a choice, and keep it if nothing known is better."""
        plan = settled(self.graph, saved, network.savable)
        if plan.handed in self._seen:
            return
        self._seen.add(plan.handed)
        seconds = self._spent(plan)
        least = forward_peak(self.graph, plan)
        if any(c.seconds <= seconds and c.peak <= least for c in self.best):
            return
        peak = max(least, best_order(self.graph, plan, enough=least)[1])
        twice = self._twice_in_memory(plan)
        if twice and self._extractions < EXTRACTIONS:
            self._extractions += 1
            saved = (self.graph.nodes[place] for place in plan.handed)
            peak = simulate(extract(self.facts, saved, (), self._options), self._options).peak
        else:
            peak += twice
        self._keep(Choice(label, plan.handed, peak, seconds, network))

    def _twice_in_memory(self, plan: Plan) -> int:
        """Return the bytes that the backward makes again while they are alive, which numbers cannot tell apart.

        Tags may demand it. The peak is no higher than without them and these bytes.
        """
        graph = self.graph
        alive = graph.storages_of(graph.results) | plan.over(graph)
        again = (p for p in range(graph.count) if plan.needed[p] and not graph.backward[p])
        return sum(graph.sizes[s] for p in again for s in graph.made[p] if s in alive)

    def _keep(self, new: Choice) -> None:
        if any(c.seconds <= new.seconds and c.peak <= new.peak for c in self.best):
            return
        kept = [c for c in self.best if c.seconds < new.seconds or c.peak < new.peak]
        self.best = sorted([*kept, new], key=lambda choice: choice.seconds)


def frontier(facts: JointFacts, options: PartitionOptions) -> tuple[Choice, ...]:
    """Return the choices that no other beats in both peak and time, from the highest peak to the lowest."""
    search = Search(facts, options)
    saving, cheap, priced = (
        PricedNetwork(facts, rules, options, search.costs)
        for rules in (SAVE_ALL_RULES, MIN_CUT_RULES, BUDGET_RULES)
    )
    for label, ends in (("save_all", saving), ("min_cut", cheap)):
        search.consider(label, ends.cut(0.0), ends.network)
    rates = []
    for rate, saved in hull(priced, search.weigh, HULL_CUTS):
        rates.append(rate)
        search.consider(f"rate {rate:g}", saved, priced.network)
    middle = sorted(rates)[len(rates) // 2]
    _pieces(search, (cheap, priced), (0.0, middle))
    _allowances(search, priced, (0.0, middle))
    _between(search)
    _fill(search, priced.network)
    _step(search, priced.network)
    return tuple(search.best)


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
    """Let ever more of what takes time by itself be computed again, those first that take least for their bytes.

    A price asks the same of all that cost the same; this also finds what lies between.
    """
    for nodes in cuts.rankings:
        step = max(1, -(-len(nodes) // ALLOWANCES))
        for count in range(0, len(nodes) + step, step):
            for rate in rates:
                saved = cuts.cut(rate, barred=frozenset(nodes[count:]))
                search.consider(f"{count} allowed, rate {rate:g}", saved, cuts.network)


def _between(search: Search) -> None:
    """Try sets between neighbours, the widest gap first, until the allowance is used up or no gap is left."""
    graph, seconds = search.graph, search.seconds
    most, network = search.best[0].saved, search.best[-1].network
    tried: set[tuple[int, tuple[int, ...], tuple[int, ...], float]] = set()
    for _ in range(max(LEAST_STEPS, STEPS_TIMES_NODES // graph.count)):
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


WAYS = (adding, giving_up)
SHARES = (0.5, 0.25, 0.75)


def _area(gap: tuple[Choice, Choice]) -> float:
    high, low = gap
    return (low.peak - high.peak) * (low.seconds - high.seconds)


def _step(search: Search, network: Network) -> None:
    """Try neighbours of each choice, which save one value less or one more, as long as any is an improvement."""
    graph, seconds = search.graph, search.seconds
    allowance = NEIGHBOURS * max(LEAST_STEPS, STEPS_TIMES_NODES // graph.count)
    done: set[tuple[int, ...]] = set()
    while allowance > 0:
        new = [choice for choice in search.best if choice.saved not in done]
        if not new:
            return
        for choice in new[: max(1, allowance // (2 * NEIGHBOURS))]:
            saved = choice.saved
            done.add(saved)
            again = make_plan(graph, saved).repeated(graph)
            offered = [place for place in again if graph.nodes[place] in network.savable]
            less = by_loss(graph, seconds, saved)[:NEIGHBOURS]
            more = by_gain(graph, seconds, saved, offered)[:NEIGHBOURS]
            for place in less:
                search.consider("one less", set(saved) - {place}, network)
            for place in more:
                search.consider("one more", (*saved, place), network)
            allowance -= len(less) + len(more)


def _fill(search: Search, network: Network) -> None:
    """Save more where the peak does not grow by it: what is not alive at the peak costs nothing."""
    graph, seconds = search.graph, search.seconds
    allowance = max(LEAST_STEPS, STEPS_TIMES_NODES // graph.count)
    for choice in search.best:
        saved, peak = choice.saved, choice.peak
        again = make_plan(graph, saved).repeated(graph)
        gains = by_gain(
            graph,
            seconds,
            saved,
            [place for place in again if graph.nodes[place] in network.savable],
        )
        for place in gains[: allowance // len(search.best)]:
            plan = make_plan(graph, (*saved, place))
            if peak_of_plan(graph, plan) <= peak:
                saved = plan.handed
        if saved != choice.saved:
            search.consider("filled", saved, choice.network)


def peak_of_plan(graph: Compact, plan: Plan) -> int:
    """Return the simulated peak of forward and backward."""
    first = forward_peak(graph, plan)
    return max(first, best_order(graph, plan, enough=first)[1])


def forward_peak(graph: Compact, plan: Plan) -> int:
    """Return the simulated peak of the forward, with the copies of inputs that it hands over."""
    first = plan.forward(graph)
    given = graph.given
    order = [p for p in range(graph.count) if first[p] and not given[p]]
    handed = plan.over(graph)
    copies = handed.intersection(graph.shields.values())
    kept = handed | graph.storages_of(graph.leaving) | set(graph.shields.values())
    return peak_bytes(graph, order, copies, kept, plan.in_forward(graph))
