"""``ilp``: an exact trade of recomputation against the bytes saved, on small graphs: the yardstick of the others.

An integer program over what is saved and what is computed again: the least estimated seconds of recomputation
while the bytes alive between forward and backward stay under a cap. The solution is simulated; while its peak is
above the budget, the cap is lowered to just below what the solution keeps. So it walks the exact curve of seconds
against saved bytes, with the points that no exchange rate reaches, to the first that fits. The solver is HiGHS, through
SciPy.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from fxstack_partition.budgets.budget import bytes_allowed, partition_within
from fxstack_partition.budgets.frontier import frontier
from fxstack_partition.budgets.plan import PartitionError, complete_plan
from fxstack_partition.budgets.program import bytes_between, cheapest_under, grain_of
from fxstack_partition.budgets.search import peak_of_plan
from fxstack_partition.extraction.extract import extract
from fxstack_partition.joint.merge import analyze_merged
from fxstack_partition.joint.work import WorkModel
from fxstack_partition.mincut.network import Network, build
from fxstack_partition.policy.policy import BUDGET_RULES
from fxstack_partition.registry import register

if TYPE_CHECKING:
    from fxstack_interchange import Partition, StageGraph
    from fxstack_partition.joint.joint import JointFacts
    from fxstack_partition.options import PartitionOptions

# Limits: exact in saved bytes, not in the peak.

MOST_NODES = 200
"""Nodes of the forward that take part; above, the solver takes too long to be of use."""

MOST_ROUNDS = 100


@register("ilp")
def ilp(joint: StageGraph, options: PartitionOptions) -> Partition:
    """Recompute the least that ``options.budget`` allows, by an integer program (see the module).

    Raises:
        BudgetError: no choice of saved values meets the budget; says by how much.
        PartitionError: the graph is too large, or nothing was found in the rounds allowed.
        ValueError: the budget is malformed.
    """
    facts = analyze_merged(joint, options)
    network = build(facts, BUDGET_RULES, options)
    if len(network.decisions) > MOST_NODES:
        msg = (
            f"'ilp' is for small graphs: this one decides about {len(network.decisions)} nodes, "
            f"more than {MOST_NODES}; use 'budget'"
        )
        raise PartitionError(msg)
    choices = frontier(facts, options)
    limit = bytes_allowed(choices, options.budget)
    saved = optimal(facts, network, limit, WorkModel(joint, options))
    if saved is None:
        # The program bounds saved bytes, not the peak: another set of as many bytes may fit, or nothing does.
        return partition_within(facts, choices, options)
    return extract(facts, (facts.nodes[place] for place in saved), network.reasons, options)


def optimal(facts: JointFacts, network: Network, limit: int, costs: WorkModel) -> tuple[int, ...] | None:
    """Return the first point of the curve whose simulated peak is within ``limit``; None if there is none."""
    cap = limit
    for _ in range(MOST_ROUNDS):
        saved = cheapest_under(facts, network, costs, cap)
        if saved is None:
            return None
        plan = complete_plan(facts.compact, saved, network.savable)
        if peak_of_plan(facts.compact, plan) <= limit:
            return plan.handed
        cap = min(cap, bytes_between(facts, plan.handed)) - grain_of(cap)
    msg = f"nothing within the budget in {MOST_ROUNDS} rounds; use 'budget'"
    raise PartitionError(msg)
