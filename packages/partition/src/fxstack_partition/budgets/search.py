"""The state of a search: one choice of saved values, and the choices found so far that are worth keeping.

A choice is simulated, with the order of its backward, unless a bound already shows that another is better.
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
"""The number of choices that are simulated as graphs if numbers give only a bound."""


@dataclass(frozen=True, slots=True)
class Choice:
    """One member of the family: its saved values, its simulated peak, the estimated seconds of recomputation.

    ``products``: the flops of matrix products, convolutions and attention in the recomputation. They are its
    cost if everything else is fused.
    """

    label: str
    saved: tuple[int, ...]
    peak: int
    seconds: float
    products: int
    network: Network

    def beats(self, peak: int, seconds: float, products: int) -> bool:
        """Whether this choice is no worse in any respect."""
        return self.peak <= peak and self.seconds <= seconds and self.products <= products

    @property
    def reasons(self) -> tuple[tuple[str, str], ...]:
        """Return the rule that decided about each node."""
        return self.network.reasons


COSTS: dict[str, Callable[[Choice], tuple[float, ...]]] = {
    "seconds": lambda choice: (choice.seconds,),
    "products": lambda choice: (choice.products, choice.seconds),
}
"""The cost of recomputation, by the name in ``PartitionOptions.cost``."""


def pareto_choices(
    choices: Iterable[Choice], cost: Callable[[Choice], tuple[float, ...]]
) -> tuple[Choice, ...]:
    """Return the choices with a lower peak than all choices that cost no more, by rising cost."""
    found: list[Choice] = []
    for choice in sorted(choices, key=lambda c: (cost(c), c.peak)):
        if not found or choice.peak < found[-1].peak:
            found.append(choice)
    return tuple(found)


class Search:
    """The choices found so far that no other choice beats in both peak and time."""

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
        seconds = self.seconds
        return sum(seconds[index] for index in plan.repeated(self.graph))

    def consider(self, label: str, saved: Iterable[int], network: Network) -> None:
        """Simulate a choice, and keep it if no known choice is better."""
        plan = complete_plan(self.graph, saved, network.savable)
        if plan.saved_values in self._seen:
            return
        self._seen.add(plan.saved_values)
        again = plan.repeated(self.graph)
        seconds = sum(self.seconds[index] for index in again)
        products = sum(self.products[index] for index in again)
        least = _alive_between(self.graph, plan)
        if any(c.beats(least, seconds, products) for c in (*self.best, *self.product_choices)):
            return
        peak = peak_of_plan(self.graph, plan, least)
        twice = self._duplicated_bytes(plan)
        if twice and self._extractions < EXTRACTIONS:
            self._extractions += 1
            saved = (self.graph.nodes[index] for index in plan.saved_values)
            peak = simulate(extract_quietly(self.facts, saved, self._options), self._options).peak
        else:
            peak += twice
        self._keep(Choice(label, plan.saved_values, peak, seconds, products, network))

    def _duplicated_bytes(self, plan: Plan) -> int:
        """Return the bytes that the backward recomputes while they are alive: numbers see only one copy.

        Tags may demand such recomputation. The peak is at most the peak without them plus these bytes.
        """
        graph = self.graph
        alive = graph.storages_of(graph.results) | plan.saved_storages(graph)
        again = (p for p in range(graph.count) if plan.needed[p] and not graph.backward[p])
        return sum(graph.sizes[s] for p in again for s in graph.allocated[p] if s in alive)

    def _keep(self, new: Choice) -> None:
        """Keep a choice among the best in peak and seconds, or aside if only its products are fewer."""
        known = [*self.best, *self.product_choices]
        if any(c.beats(new.peak, new.seconds, new.products) for c in known):
            return
        kept = [c for c in known if not new.beats(c.peak, c.seconds, c.products)]
        self.best = list(pareto_choices((*kept, new), COSTS["seconds"]))
        best = {choice.saved for choice in self.best}
        self.product_choices = [choice for choice in (*kept, new) if choice.saved not in best]


def peak_of_plan(graph: IndexGraph, plan: Plan, least: int | None = None) -> int:
    """Return the simulated peak of forward and backward. ``least``: the bytes alive between them."""
    stop_at = _alive_between(graph, plan) if least is None else least
    second = best_order(graph, plan, stop_at=stop_at)[1]
    return max(second, forward_order(graph, plan, stop_at=second)[1])


def _alive_between(graph: IndexGraph, plan: Plan) -> int:
    """Return the bytes alive after the forward, a lower bound of every step's peak."""
    return sum(graph.sizes[s] for s in plan.saved_storages(graph) | graph.storages_of(graph.forward_outputs))
