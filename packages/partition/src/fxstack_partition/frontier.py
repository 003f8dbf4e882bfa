"""The trade between memory and recomputation: a family of partitions, of which the best at each peak are kept.

The family does not depend on a budget; that is what makes budgets monotone. Its members are minimum cuts in which
recomputation has a price (each is optimal for one exchange rate of seconds and bytes), alone and together with
checkpoints after which the forward is run again piece by piece (Chen et al., Training Deep Nets with Sublinear
Memory Cost, 2016). Each member is simulated, backward order included.
"""

from __future__ import annotations

from dataclasses import dataclass
from itertools import pairwise
from typing import TYPE_CHECKING

from torch.fx import Node

from fxstack_partition.cost import SizeModel
from fxstack_partition.extract import Plan, copied_values, make_plan
from fxstack_partition.network import BYTE, build
from fxstack_partition.options import PartitionOptions
from fxstack_partition.order import choose_order, peak_bytes
from fxstack_partition.policy import BUDGET_RULES, MIN_CUT_RULES, SAVE_ALL_RULES, Rule
from fxstack_partition.program import bytes_between, cheapest_under
from fxstack_partition.relink import paths
from fxstack_partition.segments import checkpoints
from fxstack_partition.solve import minimum_cut
from fxstack_partition.work import WorkModel

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from fxstack_partition.joint import JointFacts
    from fxstack_partition.network import Network


@dataclass(frozen=True, slots=True)
class Choice:
    """One member of the family: what it saves, its simulated peak, the estimated seconds of recomputation."""

    label: str
    saved: tuple[Node, ...]
    peak: int
    seconds: float
    reasons: tuple[tuple[str, str], ...]


RATES = (0.0, 1e5, 1e6, 1e7, 1e8, 1e9, 1e10, 1e11, 1e12)
"""Bytes that a second of recomputation is worth, from recomputing whatever can be to almost nothing."""

PIECES = (2, 3, 4, 6, 8, 12, 16, 24, 32)
PIECE_RATES = (0.0, 1e9)


def frontier(facts: JointFacts, options: PartitionOptions) -> tuple[Choice, ...]:
    """Return the choices that no other beats in both peak and time, from the highest peak to the lowest."""
    costs = WorkModel(facts.graph, options)
    found = [
        judge(facts, costs, label, saved, _reasons(network))
        for label, saved, network in _family(facts, options, costs)
    ]
    best = _undominated(found)
    most = best[0].saved
    pairs = [(low.saved, high.saved) for high, low in pairwise(best)]
    pairs += [(choice.saved, most) for choice in best[2:]]
    allowance = max(LEAST_STEPS, STEPS_TIMES_NODES // len(facts.nodes))
    found += [
        judge(facts, costs, "between", saved, best[-1].reasons)
        for saved in paths(facts, costs, pairs, allowance)
    ]
    return _undominated(found)


STEPS_TIMES_NODES = 40_000
LEAST_STEPS = 16
"""Bounds on the sets that are tried between choices: large graphs take longer for each."""


def _undominated(found: list[Choice]) -> tuple[Choice, ...]:
    best: list[Choice] = []
    for choice in sorted(found, key=lambda choice: (choice.seconds, choice.peak)):
        if not best or choice.peak < best[-1].peak:
            best.append(choice)
    return tuple(best)


def _family(
    facts: JointFacts, options: PartitionOptions, costs: WorkModel
) -> Iterator[tuple[str, tuple[Node, ...], Network]]:
    seen: set[tuple[Node, ...]] = set()
    for label, network in _networks(facts, options, costs):
        saved = minimum_cut(network, options.solver)
        if saved not in seen:
            seen.add(saved)
            yield label, saved, network
    network = build(facts, BUDGET_RULES, options)
    if seen and len(network.decisions) <= MOST_DECISIONS:
        sizes = [bytes_between(facts, make_plan(facts, saved).handed) for saved in seen]
        count = CAPS if len(network.decisions) <= MOST_DECISIONS // 5 else FEWER_CAPS
        for step in range(count):
            cap = min(sizes) + (max(sizes) - min(sizes)) * step // count
            saved = cheapest_under(facts, network, costs, cap, gap=0.01) or ()
            if saved and saved not in seen:
                seen.add(saved)
                yield f"cap {cap}", saved, network


MOST_DECISIONS = 1000
CAPS = 12
FEWER_CAPS = 6
"""Caps on saved bytes for which the integer program is solved: fewer above 200 decisions, none above the most."""


def _networks(
    facts: JointFacts, options: PartitionOptions, costs: WorkModel
) -> Iterator[tuple[str, Network]]:
    yield "save_all", build(facts, SAVE_ALL_RULES, options)
    yield "min_cut", build(facts, MIN_CUT_RULES, options)
    for rate in RATES:
        yield f"rate {rate:g}", _priced(facts, BUDGET_RULES, options, costs, rate=rate)
    seen: set[frozenset[Node]] = set()
    for count in PIECES:
        granted = checkpoints(facts, count)
        if granted and granted not in seen:
            seen.add(granted)
            for rules in (MIN_CUT_RULES, BUDGET_RULES):
                for rate in PIECE_RATES:
                    network = _priced(facts, rules, options, costs, rate=rate, granted=granted)
                    yield f"{count} pieces, rate {rate:g}", network


def _priced(
    facts: JointFacts,
    rules: tuple[Rule, ...],
    options: PartitionOptions,
    costs: WorkModel,
    *,
    rate: float,
    granted: frozenset[Node] = frozenset(),
) -> Network:
    def penalty(node: Node) -> int:
        if node not in facts.forward:
            return 0
        return int(rate * BYTE * costs.of(node).seconds)

    return build(facts, rules, options, penalty if rate else None, granted=granted)


def _reasons(network: Network) -> tuple[tuple[str, str], ...]:
    return tuple(
        (node.name, f"{decision.rule.name}: {decision.rule.reason}")
        for node, decision in network.decisions.items()
    )


def judge(
    facts: JointFacts,
    costs: WorkModel,
    label: str,
    saved: Iterable[Node],
    reasons: tuple[tuple[str, str], ...],
) -> Choice:
    """Simulate one choice of saved values."""
    plan = make_plan(facts, saved)
    seconds = costs.seconds(sorted(plan.repeated(facts), key=facts.position.__getitem__))
    return Choice(label, tuple(saved), peak_of_plan(facts, plan), seconds, reasons)


def peak_of_plan(facts: JointFacts, plan: Plan) -> int:
    """Return the simulated peak of forward and backward."""
    table = facts.storages
    results = {s for node in facts.results for s in table.of[node]}
    handed = {s for node in plan.handed for s in table.of[node]}
    leaving = [v for v in facts.forward_outputs if isinstance(v, Node)]
    outputs = handed.union(s for node in leaving for s in table.of[node])
    backward = choose_order(facts, plan.needed, plan.handed)
    held = results | handed | {s for node in facts.tangents for s in table.of[node]}
    gradients = [v for v in facts.gradients if isinstance(v, Node)]
    kept = results.union(s for node in gradients for s in table.of[node])
    first = peak_bytes(forward_order(facts, plan), table, (), outputs)
    copies = SizeModel(facts.graph, PartitionOptions())
    shields = sum(
        copies.value_bytes(node.meta.get("val")) for node in copied_values(facts, plan.handed)
    )
    return shields + max(first, peak_bytes(backward, table, held, kept))


def forward_order(facts: JointFacts, plan: Plan) -> list[Node]:
    """Return the nodes that the forward computes, in order."""
    needed = plan.forward(facts)
    given = ("placeholder", "get_attr")
    return [node for node in facts.nodes[:-1] if node in needed and node.op not in given]
