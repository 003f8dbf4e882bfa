"""The partitioner ``ilp``: exact minimal recomputation on small graphs, a reference for ``budget``.

An integer program over saved and recomputed nodes minimises the estimated seconds of recomputation, while the
bytes alive between forward and backward stay under a cap. The solution is simulated. While its peak exceeds
the budget, the cap is lowered to just below the bytes of the solution. So the search walks the exact curve of
seconds against saved bytes, including points that no exchange rate reaches, to the first point that fits. The
solver is HiGHS, through SciPy.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Final

from fxstack_interchange import Partition, StageGraph
from fxstack_interchange.passes import Pass, run_passes
from fxstack_partition.budgets.budget import (
    Budgeting,
    budget_text,
    bytes_allowed,
    find_frontier,
    partition_within,
)
from fxstack_partition.budgets.program import bytes_between, cheapest_under, grain_of
from fxstack_partition.budgets.search import peak_of_plan
from fxstack_partition.extraction.extract import extract
from fxstack_partition.extraction.passes import build_network, classify_nodes, merge_repetitions
from fxstack_partition.joint.cost import WorkModel
from fxstack_partition.joint.joint import JointFacts
from fxstack_partition.mincut.network import Network, build_flow_network
from fxstack_partition.options import PartitionOptions
from fxstack_partition.ordering.plan import PartitionError, complete_plan
from fxstack_partition.policy.policy import BUDGET_RULES
from fxstack_partition.registry import register

# Limits: exact in saved bytes, not in the peak.

MAX_NODES = 200
"""Limit of forward nodes in the network. For more nodes the solver is too slow."""

MAX_ROUNDS = 100


@register("ilp")
def ilp(joint: StageGraph, options: PartitionOptions) -> Partition:
    """Recompute as little as ``options.budget`` allows, by an integer program.

    Raises:
        BudgetError: if no choice of saved values meets the budget. The text says by how much.
        PartitionError: if the graph is too large, or no solution is found in the allowed rounds.
        ValueError: if the budget is malformed.
    """
    return run_passes("ilp", ILP, Budgeting(joint, options, _small_network), budget_text).partition


def _small_network(facts: JointFacts, options: PartitionOptions) -> Network:
    """Return the network, as the policy of ``ilp``. Raise PartitionError if it has more than ``MAX_NODES`` nodes."""
    network = build_flow_network(facts, BUDGET_RULES, options)
    if len(network.decisions) > MAX_NODES:
        msg = (
            f"'ilp' is for small graphs: this one decides about {len(network.decisions)} nodes, "
            f"more than {MAX_NODES}; use 'budget'"
        )
        raise PartitionError(msg)
    return network


def solve_program(state: Budgeting) -> Budgeting:
    """Cut by the solution of an integer program: the least recomputation within the budget.

    >>> example("solve_program", lambda x: x.sin().cos().sin().cos())
    + # forward graph: 1 inputs, 5 operations, 4 outputs
    + arg0_1: f32[3],  # user_input
    + sin = aten.sin(arg0_1)
    + cos = aten.cos(sin)
    + sin_1 = aten.sin(cos)
    ...
    + mul_3,  # gradient of arg0_1
    """
    facts, network, options = state.joint_facts, state.network, state.effective_options
    assert network is not None
    limit = bytes_allowed(state.choices, options.budget)
    saved = solve_by_lowering_cap(facts, network, limit, WorkModel(state.joint, options))
    if saved is None:
        # The program bounds saved bytes, not the peak: another set of equal bytes may fit.
        return replace(state, result=partition_within(facts, state.choices, options))
    chosen = (facts.nodes[index] for index in saved)
    return replace(state, result=extract(facts, chosen, network.reasons, options))


ILP: Final[tuple[Pass[Budgeting], ...]] = (
    Pass("classify_nodes", classify_nodes),
    Pass("merge_repetitions", merge_repetitions),
    Pass("build_network", build_network),
    Pass("find_frontier", find_frontier),
    Pass("solve_program", solve_program),
)


def solve_by_lowering_cap(
    facts: JointFacts, network: Network, limit: int, costs: WorkModel
) -> tuple[int, ...] | None:
    """Return the saved values with the least recomputation and a simulated peak of at most ``limit``, or None.

    The program bounds saved bytes, so its cap is lowered until the simulated peak fits.
    """
    cap = limit
    for _ in range(MAX_ROUNDS):
        saved = cheapest_under(facts, network, costs, cap)
        if saved is None:
            return None
        plan = complete_plan(facts.index_graph, saved, network.savable)
        if peak_of_plan(facts.index_graph, plan) <= limit:
            return plan.saved_values
        cap = min(cap, bytes_between(facts, plan.saved_values)) - grain_of(cap)
    msg = f"no solution within the budget in {MAX_ROUNDS} rounds; use 'budget'"
    raise PartitionError(msg)
