"""Random numbers drawn again from the kept state of the generator: equal numbers, and no other draw is moved."""

import pytest
import torch
from joint_programs import rand
from joints import compare, trace_joint

from fxstack_partition import (
    PartitionOptions,
    analyze,
    check_partition,
    explain,
    extract,
    partition,
    simulate,
)

N = 4096

PROGRAMS = {
    "native_dropout": lambda x: torch.native_dropout(x.sin(), 0.5, True)[0].exp(),
    "bernoulli": lambda x: (torch.bernoulli(torch.full_like(x, 0.5)) * x).exp(),
    "rand_like": lambda x: (x * torch.rand_like(x)).sin(),
    "randn_like": lambda x: (x * torch.randn_like(x)).sin(),
    "between": lambda x: (x * torch.rand_like(x)).sin() * torch.rand_like(x) + torch.rand(N),
    "normal": lambda x: (x * torch.normal(x.detach(), 1.0)).sin(),
    "random_size": lambda x: (x * torch.randint_like(x, 0, 9)).sin(),
}


def everything_again(fn, *inputs, dynamic=False):
    """Save the inputs alone; return the joint graph and its partition, which computes what it computes."""
    joint = trace_joint(fn, *inputs, dynamic=dynamic)
    facts = analyze(joint)
    saved = [n for n in facts.nodes if n in facts.primals or n.target is torch.ops.aten.rand.default]
    part = extract(facts, saved)
    check_partition(joint, part)
    compare(joint, part, inputs)
    return joint, part


def drawn_again(part):
    graph = part.backward.graph_module.graph
    target = torch.ops.higher_order.run_with_rng_state
    return [n.name for n in graph.find_nodes(op="call_function", target=target)]


@pytest.mark.parametrize("name", PROGRAMS)
def test_the_same_numbers_come_out(name):
    _, part = everything_again(PROGRAMS[name], rand(N))
    assert drawn_again(part)
    assert set(drawn_again(part)) <= set(part.recomputed)


def test_symbolic_sizes():
    _, part = everything_again(PROGRAMS["native_dropout"], rand(7, 9), dynamic=True)
    assert drawn_again(part)
    kinds = [isinstance(n.meta["val"], torch.Tensor) for n in inputs_of(part)]
    assert kinds == sorted(kinds, reverse=True)


def inputs_of(part):
    return part.backward.graph_module.graph.find_nodes(op="placeholder")[: len(part.saved)]


def test_explain_names_the_state():
    _, part = everything_again(PROGRAMS["native_dropout"], rand(N))
    found = {item.name: item for item in explain(part).saved}
    state = found["native_dropout_state"]
    assert state.rule == "drawn again: the generator's state before 'native_dropout'"
    assert state.bytes == torch.get_rng_state().numel()


@pytest.mark.skipif(torch.__version__ < "2.13", reason="graphs of torch 2.11 do not hold generators")
def test_a_generator_of_its_own_is_not_drawn_from_again():
    own = torch.Generator().manual_seed(3)
    joint = trace_joint(lambda x: (x * torch.rand_like(x, generator=own)).sin(), rand(N))
    part = partition(joint, "budget", PartitionOptions(budget=0.0))
    assert not drawn_again(part)


def several_masks(x):
    for _ in range(6):
        x = (torch.rand_like(x) * x).sin()
    return x.sum()


def test_budgets_weigh_the_state_against_the_numbers():
    def peak(size, *, redraw):
        joint = trace_joint(several_masks, rand(size))
        options = PartitionOptions(budget=0.0, redraw=redraw)
        return simulate(partition(joint, "budget", options)).peak

    assert peak(1 << 16, redraw=True) < peak(1 << 16, redraw=False)
    assert peak(64, redraw=True) == peak(64, redraw=False)


def test_a_tag_of_a_checkpointed_region_draws_again():
    inputs = (rand(N),)
    joint = trace_joint(PROGRAMS["native_dropout"], *inputs)
    for node in analyze(joint).forward:
        node.meta["recompute"] = "must_recompute"
    part = partition(joint, "min_cut")
    assert drawn_again(part) == ["native_dropout"]
    check_partition(joint, part)
    compare(joint, part, inputs)


def test_min_cut_reads_numbers_that_were_drawn():
    part = partition(trace_joint(PROGRAMS["native_dropout"], rand(N)), "min_cut")
    assert not drawn_again(part)
