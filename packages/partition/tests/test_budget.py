"""Budgets on the simulated peak: kept, monotone, and refused with the distance where they cannot be met."""

import pytest
import torch
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from joint_programs import PROGRAMS, norm_dropout, rand, residual_chain
from joints import check, compare, trace_joint

from fxstack_interchange import verify
from fxstack_partition import BudgetError, PartitionOptions, analyze, corpus, partition, simulate
from fxstack_partition.budgets.budget import bytes_allowed, partition_within
from fxstack_partition.budgets.frontier import frontier
from fxstack_partition.joint.cost import WorkModel

OPTIONS = PartitionOptions()
STEPS = [i / 8 for i in range(9)]


def curve(joint):
    """Simulated peaks and estimated seconds of recomputation at rising budgets."""
    facts = analyze(joint)
    choices = frontier(facts, OPTIONS)
    peaks, seconds = [], []
    for budget in STEPS:
        options = PartitionOptions(budget=budget)
        part = partition_within(facts, choices, options)
        peaks.append(simulate(part).peak)
        assert peaks[-1] <= bytes_allowed(choices, budget)
        nodes = {n.name: n for n in facts.nodes}
        first = {n.name for n in part.forward.graph_module.graph.nodes}
        again = [nodes[n] for n in part.recomputed if n in first]
        seconds.append(WorkModel(joint, OPTIONS).seconds(again))
    return peaks, seconds


@pytest.mark.parametrize("name", ["softmaxes", "unet_symbolic", "mlp_symbolic"])
def test_less_budget_never_has_a_higher_peak_nor_less_recomputation(name):
    peaks, seconds = curve(corpus.load(name))
    assert peaks == sorted(peaks)
    assert seconds == sorted(seconds, reverse=True)


def layers(shapes):
    def fn(x, *weights):
        for index, weight in enumerate(weights):
            x = (torch.tanh, torch.sin, lambda h: h.softmax(-1))[index % 3](x @ weight) * x
        return x.sum()

    return trace_joint(fn, rand(shapes[0], 8), *(rand(8, 8) for _ in shapes))


@settings(max_examples=10, deadline=None, suppress_health_check=list(HealthCheck))
@given(st.lists(st.integers(2, 64), min_size=1, max_size=6))
def test_random_chains_have_monotone_budgets(shapes):
    peaks, seconds = curve(layers(shapes))
    assert peaks == sorted(peaks)
    assert seconds == sorted(seconds, reverse=True)


def test_the_frontier_is_a_frontier():
    choices = frontier(analyze(corpus.load("softmaxes")), OPTIONS)
    assert [c.peak for c in choices] == sorted((c.peak for c in choices), reverse=True)
    assert [c.seconds for c in choices] == sorted(c.seconds for c in choices)
    assert len(choices) > 3


def test_the_frontier_counts_what_is_asked_for():
    facts = analyze(corpus.load("unet_symbolic"))
    by_seconds, by_products = (
        frontier(facts, PartitionOptions(cost=cost)) for cost in ("seconds", "products")
    )
    for choice in by_seconds:
        assert min(c.products for c in by_products if c.peak <= choice.peak) <= choice.products
    for choice in by_products:
        assert min(c.seconds for c in by_seconds if c.peak <= choice.peak) <= choice.seconds
    assert by_products[-1].peak == by_seconds[-1].peak


@pytest.mark.parametrize("budget", [0.0, 0.5, 1.0])
def test_results_are_not_made_again_unless_they_must(budget):
    """What the caller holds anyway is free to save."""

    def tagged(tag):
        joint = trace_joint(lambda x: (y := x.exp(), y.sin().cos()), rand(64))
        for node in joint.graph_module.graph.find_nodes(
            op="call_function", target=torch.ops.aten.exp.default
        ):
            node.meta.update({} if tag is None else {"recompute": tag})
        return partition(joint, "budget", PartitionOptions(budget=budget))

    assert "exp" not in tagged(None).recomputed
    assert "exp" in tagged("must_recompute").recomputed


def test_views_of_what_is_made_again_are_not_saved():
    def fn(x):
        big = x.exp()
        return (big.view(8, 8).t() @ big.view(8, 8)).sum() + big.sin().sum()

    facts = analyze(trace_joint(fn, rand(64)))
    for choice in frontier(facts, OPTIONS):
        part = partition_within(facts, (choice,), PartitionOptions(budget=1.0))
        assert simulate(part).peak == choice.peak


@pytest.mark.parametrize("name", ["softmaxes", "unet"])
def test_predicted_peaks_are_simulated_peaks(name):
    facts = analyze(corpus.load(name))
    for choice in frontier(facts, OPTIONS):
        part = partition_within(facts, (choice,), PartitionOptions(budget=1.0))
        assert simulate(part).peak == choice.peak


def test_copies_of_updated_inputs_are_foreseen():
    facts = analyze(corpus.load("mlp_symbolic"))
    for choice in frontier(facts, OPTIONS):
        part = partition_within(facts, (choice,), PartitionOptions(budget=1.0))
        assert 0.8 * choice.peak <= simulate(part).peak <= choice.peak


def test_budgets_save_memory_that_min_cut_does_not():
    joint = corpus.load("softmaxes")
    tight = partition(joint, "budget", PartitionOptions(budget=0.0))
    assert simulate(tight).peak < 0.6 * simulate(partition(joint, "min_cut")).peak


@pytest.mark.parametrize("budget", [0.0, 0.5, 1.0])
@pytest.mark.parametrize("program", PROGRAMS)
def test_results_are_the_joint_graphs(program, budget):
    fn, make = PROGRAMS[program]
    inputs = make()
    joint = trace_joint(fn, *inputs)
    part = partition(joint, "budget", PartitionOptions(budget=budget))
    verify(part.forward)
    verify(part.backward)
    compare(joint, part, inputs)


def test_symbolic_sizes():
    check(residual_chain, rand(4, 6), rand(6, 6), name="budget", dynamic=True)


def test_random_numbers_are_not_drawn_again_where_that_is_ruled_out():
    joint = trace_joint(norm_dropout, rand(64, 256), rand(256), rand(256))
    part = partition(joint, "budget", PartitionOptions(budget=0.0, redraw=False))
    assert "native_dropout" not in part.recomputed


def test_a_budget_in_bytes_is_kept():
    joint = corpus.load("softmaxes")
    part = partition(joint, "budget", PartitionOptions(budget=5_000_000))
    assert 3_000_000 < simulate(part).peak <= 5_000_000


def test_an_impossible_budget_says_by_how_much():
    joint = corpus.load("softmaxes")
    lowest = simulate(partition(joint, "budget", PartitionOptions(budget=0.0))).peak
    text = f"the lowest that was found is {lowest:,} bytes, {lowest - 1000:,} more"
    with pytest.raises(BudgetError, match=text):
        partition(joint, "budget", PartitionOptions(budget=1000))


def test_a_bound_on_time_is_kept():
    joint = corpus.load("softmaxes")
    step = WorkModel(joint, OPTIONS).seconds(joint.graph_module.graph.nodes)
    peaks = []
    for bound in (0.0, 0.05, 0.2, 1.0):
        part = partition(joint, "budget", PartitionOptions(time_overhead=bound))
        peaks.append(simulate(part).peak)
        nodes = {n.name: n for n in joint.graph_module.graph.nodes}
        first = {n.name for n in part.forward.graph_module.graph.nodes}
        twice = [nodes[n] for n in part.recomputed if n in first]
        again = WorkModel(joint, OPTIONS).seconds(twice)
        assert again <= bound * step + 1e-12
    assert peaks == sorted(peaks, reverse=True)
    assert peaks[0] > peaks[-1]


@pytest.mark.parametrize("wrong", [1.5, -0.1, -5])
def test_wrong_budgets_are_errors(wrong):
    with pytest.raises(ValueError, match="budget"):
        partition(corpus.load("mlp_symbolic"), "budget", PartitionOptions(budget=wrong))
