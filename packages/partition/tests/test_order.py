"""The backward's order: correct, with recomputation late, and chosen by its simulated peak."""

import pytest
import torch
from joint_programs import PROGRAMS, rand
from joints import check, compare, trace_joint

from fxstack_partition import analyze, corpus, partition, simulate
from fxstack_partition.ordering.order import demand_order, eager_frees, peak_bytes


def is_topological(graph, order):
    seen = set()
    inside = set(order)
    for place in order:
        assert all(arg in seen for arg in graph.args[place] if arg in inside)
        seen.add(place)
    return True


def test_recomputation_comes_just_before_its_use():
    part = partition(trace_joint(lambda x: (x.sin() * x).cos().sin(), rand(16)))
    names = [n.name for n in part.backward.graph_module.graph.nodes]
    assert set(part.recomputed) <= set(names)
    nodes = {n.name: n for n in part.backward.graph_module.graph.nodes}
    for name in part.recomputed:
        first = min(names.index(user.name) for user in nodes[name].users)
        between = names[names.index(name) + 1 : first]
        assert all(b in part.recomputed or nodes[b].all_input_nodes for b in between)


@pytest.mark.parametrize("program", PROGRAMS)
def test_every_candidate_is_topological_and_complete(program):
    fn, inputs = PROGRAMS[program]
    graph = analyze(trace_joint(fn, *inputs())).index_graph
    needed = bytes(not given for given in graph.is_input)
    order = demand_order(graph, range(graph.count), needed)
    freed = eager_frees(graph, order, ())
    for candidate in (order, freed):
        assert sorted(candidate) == [place for place in range(graph.count) if needed[place]]
        assert is_topological(graph, candidate)


def test_what_frees_memory_runs_early():
    """Sums of large tensors come before further large tensors are made."""
    facts = analyze(trace_joint(lambda x: x.sin().sum() + x.cos().sum() + x.exp().sum(), rand(999)))
    graph = facts.index_graph
    work = [p for p in range(graph.count) if graph.forward[p] and not graph.is_input[p]]
    worst = [p for p in work if graph.nodes[p].name in ("sin", "cos", "exp")]
    worst += [p for p in work if p not in worst]
    better = eager_frees(graph, worst, ())

    def peak(order):
        return peak_bytes(graph, order, (), ())

    assert is_topological(graph, better)
    assert peak(worst) >= 3 * 999 * 4
    assert peak(better) < 2 * 999 * 4


@pytest.mark.parametrize("name", ["mlp", "softmaxes", "unet_symbolic"])
def test_the_chosen_order_is_no_worse_than_the_joint_graphs(name):
    joint = corpus.load(name)
    facts = analyze(joint)
    part = partition(joint)
    graph = facts.index_graph
    mine = {n.name: place for place, n in enumerate(graph.nodes)}
    order = [mine[n.name] for n in part.backward.graph_module.graph.nodes if n.op == "call_function"]
    saved = [mine[name] for name in part.saved if name in mine]
    held = graph.storages_of((*graph.results, *graph.tangents, *saved))
    kept = graph.storages_of((*graph.results, *graph.gradients))

    def peak(places):
        return peak_bytes(graph, places, held, kept)

    assert peak(order) < peak(sorted(order))


BIG = 1000
LARGE = BIG * 4 * 4
"""Bytes of what the branches below make of four numbers."""


def branches(*functions):
    """Each makes a large tensor that is summed when all are there; none is for the backward."""

    def program(x):
        large = [fn(x.detach().expand(BIG, 4)) for fn in functions]
        return x * sum(value.sum() for value in large)

    return program


FORWARDS = {
    "pointwise": branches(torch.sin, torch.cos, torch.exp),
    "drawn": branches(torch.sin, torch.rand_like, torch.cos, torch.randn_like, torch.exp),
    "drawn from results": branches(
        lambda x: torch.bernoulli(x.sigmoid()), lambda x: torch.bernoulli(x.cos() * 0.5 + 0.5)
    ),
}


@pytest.mark.parametrize("name", ["save_all", "min_cut", "budget"])
@pytest.mark.parametrize("program", FORWARDS)
def test_a_forward_is_reordered_where_that_lowers_the_peak(program, name):
    part = check(FORWARDS[program], rand(4), name=name)
    assert simulate(part).peak < 2.1 * LARGE


def test_a_forward_with_effects_keeps_the_programs_order():
    def program(x):
        large = [fn(x.detach().expand(BIG, 4)) for fn in (torch.sin, torch.cos, torch.exp)]
        torch.ops.aten._assert_async.msg(large[0].isfinite().all(), "finite")
        return x * sum(value.sum() for value in large)

    part = partition(trace_joint(program, rand(4)))
    compare(trace_joint(program, rand(4)), part, (rand(4),))
    assert simulate(part).peak > 3 * LARGE


def test_a_forward_keeps_the_programs_order_where_the_backward_peaks_higher():
    joint = corpus.load("mlp")
    part = partition(joint)
    ran = [n.name for n in part.forward.graph_module.graph.nodes if n.op == "call_function"]
    own = [n.name for n in joint.graph_module.graph.nodes]
    assert [name for name in own if name in set(ran)] == [name for name in ran if name in set(own)]
    assert simulate(part).peak_of("forward") < simulate(part).peak_of("backward")


def drawn_in_the_backward():
    """An operator that draws random numbers in its backward, twice, between large values."""

    class Noisy(torch.autograd.Function):
        @staticmethod
        def forward(ctx, x):
            return x * 2

        @staticmethod
        def backward(ctx, grad):
            large = [fn(grad.expand(BIG, 4)) for fn in (torch.rand_like, torch.sin, torch.randn_like)]
            return grad * sum(value.sum() for value in large)

    return Noisy.apply


def test_a_backward_that_draws_is_reordered_and_draws_in_order():
    part = check(drawn_in_the_backward(), rand(4))
    assert simulate(part).peak < 2.1 * LARGE
