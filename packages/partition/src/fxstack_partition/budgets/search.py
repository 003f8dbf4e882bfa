"""The state of the search for the frontier: simulate a choice, and keep it if no other choice beats it.

A choice is not simulated if a lower bound of its peak already shows that another choice beats it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass

from fxstack_partition.extraction.extract import extract_quietly
from fxstack_partition.joint.cost import WorkModel
from fxstack_partition.joint.index_graph import IndexGraph
from fxstack_partition.joint.joint import JointFacts
from fxstack_partition.joint.ops import OpKind
from fxstack_partition.mincut.network import Network
from fxstack_partition.options import PartitionOptions
from fxstack_partition.ordering.order import best_order, forward_order
from fxstack_partition.ordering.plan import Plan, complete_plan, make_plan
from fxstack_partition.ordering.simulate import simulate

EXTRACTIONS = 12
"""Limit of choices whose graphs are built for an exact simulation, where the index graph gives only a bound."""


@dataclass(frozen=True, slots=True)
class Choice:
    """A choice of saved values, with its simulated peak in bytes and its estimated seconds of recomputation.

    ``products``: the flops of matrix products, convolutions and attention in the recomputation. This is the
    cost of recomputation on a runtime that fuses all other operators. ``label`` names the search step that
    found the choice.
    """

    label: str
    saved: tuple[int, ...]
    """Indices of the saved nodes in the ``IndexGraph``."""
    peak: int
    seconds: float
    products: int
    network: Network

    def beats(self, peak: int, seconds: float, products: int) -> bool:
        """Whether this choice is at least as good in all three figures as a choice with these figures.

        ``Search`` then drops the other choice.
        """
        return self.peak <= peak and self.seconds <= seconds and self.products <= products

    @property
    def reasons(self) -> tuple[tuple[str, str], ...]:
        """Return (node name, "rule: reason") for each node about which a rule decided (``Network.reasons``)."""
        return self.network.reasons


COSTS: dict[str, Callable[[Choice], tuple[float, ...]]] = {
    "seconds": lambda choice: (choice.seconds,),
    "products": lambda choice: (choice.products, choice.seconds),
}
"""The cost of recomputation, by the name in ``PartitionOptions.cost``."""


def pareto_choices(
    choices: Iterable[Choice], cost: Callable[[Choice], tuple[float, ...]]
) -> tuple[Choice, ...]:
    """Return the choices that no cheaper choice beats in peak, by rising cost and falling peak."""
    kept: list[Choice] = []
    for choice in sorted(choices, key=lambda c: (cost(c), c.peak)):
        if not kept or choice.peak < kept[-1].peak:
            kept.append(choice)
    return tuple(kept)


class Search:
    """The choices found so far that no other choice beats.

    ``best``: the frontier of peak against seconds. ``product_choices``: further choices, which need fewer
    products.
    """

    def __init__(self, facts: JointFacts, options: PartitionOptions) -> None:
        self.facts = facts
        self._options = options
        self.graph = IndexGraph(facts, options)
        self.costs = WorkModel(facts.graph, options)
        self.seconds = [
            self.costs.cost(node).seconds if self.graph.forward[index] else 0.0
            for index, node in enumerate(self.graph.nodes)
        ]
        self.products = [
            self.costs.cost(node).flops if kind is OpKind.HEAVY and self.graph.forward[index] else 0
            for index, (node, kind) in enumerate(facts.kinds.items())
        ]
        self.best: list[Choice] = []
        self.product_choices: list[Choice] = []
        self._seen: set[tuple[int, ...]] = set()
        self._extractions = 0

    def weigh(self, saved: tuple[int, ...]) -> tuple[float, float]:
        """Return the bytes of the saved values, and the seconds of recomputation."""
        plan = make_plan(self.graph, saved)
        return sum(self.graph.sizes[s] for s in plan.saved_storages(self.graph)), self._spent(plan)

    def _spent(self, plan: Plan) -> float:
        """Return the seconds of the nodes that both stages run under ``plan``."""
        seconds = self.seconds
        return sum(seconds[index] for index in plan.repeated(self.graph))

    def consider(self, label: str, saved: Iterable[int], network: Network) -> None:
        """Simulate the choice that saves ``saved``.

        Keep it unless a choice found before beats it. ``label``: see ``Choice``.
        """
        plan = complete_plan(self.graph, saved, network.savable)
        if plan.saved_values in self._seen:
            return
        self._seen.add(plan.saved_values)
        recomputed = plan.repeated(self.graph)
        seconds = sum(self.seconds[index] for index in recomputed)
        products = sum(self.products[index] for index in recomputed)
        least = _alive_between(self.graph, plan)
        if any(c.beats(least, seconds, products) for c in (*self.best, *self.product_choices)):
            return
        peak = peak_of_plan(self.graph, plan, least)
        duplicated = self._duplicated_bytes(plan)
        if duplicated and self._extractions < EXTRACTIONS:
            self._extractions += 1
            saved = (self.graph.nodes[index] for index in plan.saved_values)
            peak = simulate(extract_quietly(self.facts, saved, self._options), self._options).peak
        else:
            peak += duplicated
        self._keep(Choice(label, plan.saved_values, peak, seconds, products, network))

    def _duplicated_bytes(self, plan: Plan) -> int:
        """Return the bytes of values that the backward recomputes while the forward's copy is alive.

        Tags may demand this. The index graph has one storage for both copies, so the true peak is higher, by at
        most these bytes.
        """
        graph = self.graph
        alive = graph.storages_of(graph.results) | plan.saved_storages(graph)
        recomputed = (p for p in range(graph.count) if plan.needed[p] and not graph.backward[p])
        return sum(graph.sizes[s] for p in recomputed for s in graph.allocated[p] if s in alive)

    def _keep(self, new: Choice) -> None:
        """Keep a choice among ``best``, or among ``product_choices`` if only its products are fewer."""
        choices = [*self.best, *self.product_choices]
        if any(c.beats(new.peak, new.seconds, new.products) for c in choices):
            return
        kept = [c for c in choices if not new.beats(c.peak, c.seconds, c.products)]
        self.best = list(pareto_choices((*kept, new), COSTS["seconds"]))
        best = {choice.saved for choice in self.best}
        self.product_choices = [choice for choice in (*kept, new) if choice.saved not in best]


def peak_of_plan(graph: IndexGraph, plan: Plan, least: int | None = None) -> int:
    """Return the simulated peak of both stages in their best orders.

    ``least``: the bytes alive between the stages, if the caller has computed them.
    """
    lower_bound = _alive_between(graph, plan) if least is None else least
    backward_peak = best_order(graph, plan, stop_at=lower_bound)[1]
    return max(backward_peak, forward_order(graph, plan, stop_at=backward_peak)[1])


def _alive_between(graph: IndexGraph, plan: Plan) -> int:
    """Return the bytes alive between the stages, a lower bound of the step's peak."""
    return sum(graph.sizes[s] for s in plan.saved_storages(graph) | graph.storages_of(graph.forward_outputs))
