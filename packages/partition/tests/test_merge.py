"""Which repetitions are merged, and that what is merged computes the same."""

import pytest
import torch
from joint_programs import rand
from joints import compare, trace_joint

from fxstack_interchange import verify
from fxstack_partition import PartitionOptions, analyze, corpus, extract, partition, simulate
from fxstack_partition.extraction.merge import analyze_merged, find_repetitions
from fxstack_partition.mincut.network import build_flow_network
from fxstack_partition.mincut.solve import minimum_cut
from fxstack_partition.partitioners import cut_with_rules
from fxstack_partition.policy.policy import MIN_CUT_RULES

OPTIONS = PartitionOptions()


def merge_repeated_nodes(fn, *inputs, options=OPTIONS, **tags):
    """The names of merged nodes that are no views, with those that stand for them."""
    joint = trace_joint(fn, *inputs)
    for node in joint.graph_module.graph.nodes:
        if node.name in tags:
            node.meta["recompute"] = tags[node.name]
    facts = analyze(joint)
    same = find_repetitions(facts, options)
    return {n.name: first.name for n, first in same.items() if facts.storages.allocated[n]}


def twice(x, w):
    """Two sums of what is read for the last time by the second."""
    h = x @ w
    return (h + 1).sin() * (h + 1).cos()


def long_between(x):
    """Two casts of an input, which stays in memory anyway."""
    a = x.to(torch.float64)
    b = (a @ a).float() @ x
    return b.to(torch.float64) + x.to(torch.float64)


def test_what_frees_its_argument_is_merged():
    assert merge_repeated_nodes(twice, rand(4, 4), rand(4, 4)) == {"add_1": "add"}


def test_what_would_only_live_longer_is_not():
    assert "_to_copy_2" not in merge_repeated_nodes(long_between, rand(4, 4))


def test_tags_that_differ_keep_nodes_apart():
    inputs = rand(4, 4), rand(4, 4)
    assert merge_repeated_nodes(twice, *inputs, add="must_save") == {}
    policy = PartitionOptions(policy=lambda n: "must_save" if n.name == "add_1" else None)
    assert merge_repeated_nodes(twice, *inputs, options=policy) == {}


def test_two_results_stay_two_tensors():
    def fn(x):
        h = x.exp()
        return h + 1, h + 1

    assert merge_repeated_nodes(fn, rand(4)) == {}


@pytest.mark.parametrize("other", [lambda h: h * 1, lambda h: h * True, lambda h: h * -0.0])
def test_arguments_that_are_only_equal_are_not_the_same(other):
    assert merge_repeated_nodes(lambda x: (x.exp() * 1.0, other(x.exp()).sin())[1], rand(4)) == {}


def test_random_numbers_are_not_merged():
    def fn(x):
        h = x.exp()
        return (torch.rand_like(h) + torch.rand_like(h) * h).sin()

    assert merge_repeated_nodes(fn, rand(4)) == {}


def test_reads_on_both_sides_of_a_write_are_not_merged():
    joint = trace_joint(lambda x: x.exp().sin() + 1, rand(4))
    nodes = joint.graph_module.graph
    exp = next(n for n in nodes.nodes if n.name == "exp")
    value = exp.meta["val"]
    with nodes.inserting_before(exp.next):
        made = [nodes.call_function(torch.ops.aten.relu.default, (exp,)) for _ in range(2)]
        write = nodes.call_function(torch.ops.aten.mul_.Tensor, (exp, 2.0))
    made[1].append(nodes.call_function(torch.ops.aten.add.Tensor, tuple(made)))
    write.append(made[1])
    for node in nodes.nodes:
        node.meta.setdefault("val", value)
    assert not find_repetitions(analyze(joint), OPTIONS)


@pytest.mark.parametrize("name", ["save_all", "min_cut", "budget", "sac", "ilp"])
def test_partitions_of_merged_graphs_are_the_joint_graphs(name):
    inputs = rand(8, 8), rand(8, 8)
    joint = trace_joint(twice, *inputs)
    names = [n.name for n in joint.graph_module.graph.nodes]
    part = partition(joint, name)
    verify(part.forward)
    verify(part.backward)
    compare(joint, part, inputs)
    assert [n.name for n in joint.graph_module.graph.nodes] == names


def test_merging_lowers_the_peak():
    joint = corpus.load("mlp_symbolic")
    peak = simulate(cut_with_rules(joint, MIN_CUT_RULES, OPTIONS)).peak
    saved = minimum_cut(build_flow_network(analyze(joint), MIN_CUT_RULES, OPTIONS), "scipy")
    assert peak < simulate(extract(analyze(joint), saved)).peak


def test_a_graph_without_repetitions_is_not_copied():
    joint = trace_joint(lambda x, w: (x @ w).relu(), rand(4, 4), rand(4, 4))
    assert analyze_merged(joint, OPTIONS).graph is joint
