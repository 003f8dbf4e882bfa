"""The integer program: exact against trying everything, and the yardstick of ``budget``."""

from itertools import combinations

import pytest
import torch
from joint_programs import PROGRAMS, rand
from joints import compare, trace_joint

from fxstack_partition import (
    BudgetError,
    PartitionError,
    PartitionOptions,
    analyze,
    corpus,
    partition,
    simulate,
)
from fxstack_partition.budgets.program import bytes_between, cheapest_under
from fxstack_partition.joint.cost import WorkModel
from fxstack_partition.mincut.network import build_flow_network
from fxstack_partition.ordering.plan import make_plan
from fxstack_partition.policy.policy import BUDGET_RULES

OPTIONS = PartitionOptions()


def seconds(facts, saved):
    again = make_plan(facts.index_graph, saved).repeated(facts.index_graph)
    return WorkModel(facts.graph, OPTIONS).seconds(facts.nodes[place] for place in again)


def by_trying(facts, network, cap):
    """The least seconds over all sets of saved values under the cap."""
    nodes = [facts.position[node] for node in network.cuttable.values()]
    best = None
    for count in range(len(nodes) + 1):
        for saved in combinations(nodes, count):
            try:
                plan = make_plan(facts.index_graph, saved)
            except PartitionError:
                continue
            if bytes_between(facts, plan.saved_values) <= cap:
                cost = seconds(facts, saved)
                best = cost if best is None else min(best, cost)
    return best


@pytest.mark.parametrize("extra", [0, 40, 200, 400])
def test_it_finds_what_trying_everything_finds(extra):
    joint = trace_joint(lambda x, w: (x @ w).sin().softmax(-1).exp() * x, rand(5, 5), rand(5, 5))
    facts = analyze(joint)
    network = build_flow_network(facts, BUDGET_RULES, OPTIONS)
    cap = bytes_between(facts, facts.index_graph.indices(facts.primals)) + extra
    saved = cheapest_under(facts, network, WorkModel(joint, OPTIONS), cap)
    assert seconds(facts, saved) == pytest.approx(by_trying(facts, network, cap))


def layers(x, *weights):
    for index, weight in enumerate(weights):
        x = torch.tanh(x @ weight) * x if index % 2 else (x @ weight).softmax(-1).sin()
    return x.sum()


@pytest.mark.parametrize("budget", [0.1, 0.4, 0.7, 1.0])
def test_budget_is_within_five_percent_of_it(budget):
    joint = trace_joint(layers, rand(64, 8), *(rand(8, 8) for _ in range(4)))
    facts = analyze(joint)
    options = PartitionOptions(budget=budget)
    nodes = {n.name: place for place, n in enumerate(facts.nodes)}
    costs = {
        name: seconds(facts, [nodes[s] for s in partition(joint, name, options).saved if s in nodes])
        for name in ("ilp", "budget")
    }
    assert costs["budget"] <= 1.05 * costs["ilp"] + 1e-12


@pytest.mark.parametrize(
    "program", ["mlp", "attention", "norm_dropout", "split_heads", "gather_sort", "no_need"]
)
def test_results_are_the_joint_graphs(program):
    fn, make = PROGRAMS[program]
    inputs = make()
    joint = trace_joint(fn, *inputs)
    compare(joint, partition(joint, "ilp", PartitionOptions(budget=0.3)), inputs)


def test_the_budget_is_kept():
    joint = trace_joint(layers, rand(64, 8), *(rand(8, 8) for _ in range(3)))
    limit = simulate(partition(joint, "save_all")).peak * 9 // 10
    assert simulate(partition(joint, "ilp", PartitionOptions(budget=limit))).peak <= limit


def test_an_impossible_budget_says_so():
    with pytest.raises(BudgetError, match="10 bytes cannot be met: the lowest .* is 4,392 bytes"):
        partition(corpus.load("mlp_symbolic"), "ilp", PartitionOptions(budget=10))


def test_large_graphs_are_refused():
    with pytest.raises(PartitionError, match="'ilp' is for small graphs"):
        partition(corpus.load("resnet"), "ilp")
