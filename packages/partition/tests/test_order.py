"""The backward's order: correct, with recomputation late, and chosen by its simulated peak."""

import pytest
from joint_programs import PROGRAMS, rand
from joints import trace_joint

from fxstack_partition import analyze, corpus, partition
from fxstack_partition.order import demand_order, eager_frees, peak_bytes


def is_topological(order):
    seen = set()
    inside = set(order)
    for node in order:
        assert all(arg in seen for arg in node.all_input_nodes if arg in inside)
        seen.add(node)
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
    facts = analyze(trace_joint(fn, *inputs()))
    needed = frozenset(n for n in facts.nodes if n.op == "call_function")
    order = demand_order(facts.nodes[:-1], needed)
    freed = eager_frees(order, facts.storages, frozenset())
    for candidate in (order, freed):
        assert set(candidate) == needed
        assert len(candidate) == len(needed)
        assert is_topological(candidate)


def test_what_frees_memory_runs_early():
    """Sums of large tensors come before further large tensors are made."""
    facts = analyze(trace_joint(lambda x: x.sin().sum() + x.cos().sum() + x.exp().sum(), rand(999)))
    work = [n for n in facts.nodes if n in facts.forward and n.op == "call_function"]
    worst = [n for n in work if n.name in ("sin", "cos", "exp")]
    worst += [n for n in work if n not in worst]
    better = eager_frees(worst, facts.storages, frozenset())

    def peak(order):
        return peak_bytes(order, facts.storages, (), ())

    assert is_topological(better)
    assert peak(worst) >= 3 * 999 * 4
    assert peak(better) < 2 * 999 * 4


@pytest.mark.parametrize("name", ["mlp", "softmaxes", "unet_symbolic"])
def test_the_chosen_order_is_no_worse_than_the_joint_graphs(name):
    joint = corpus.load(name)
    facts = analyze(joint)
    part = partition(joint)
    mine = {n.name: n for n in facts.nodes}
    order = [
        mine[n.name] for n in part.backward.graph_module.graph.nodes if n.op == "call_function"
    ]
    naive = sorted(order, key=facts.position.__getitem__)
    held = {s for n in (*facts.results, *facts.tangents) for s in facts.storages.of[n]}
    held.update(s for n in part.saved if n in mine for s in facts.storages.of[mine[n]])
    kept = {s for n in (*facts.results, *facts.gradients) if n for s in facts.storages.of[n]}

    def peak(nodes):
        return peak_bytes(nodes, facts.storages, held, kept)

    assert peak(order) < peak(naive)
