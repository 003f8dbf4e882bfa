"""Measurements of operators: what they take, once for each kind of call, and what cannot be run alone."""

import torch
import torch.nn.functional as F
from joint_programs import conv_relu, rand
from joints import trace_joint

from fxstack_partition import Measured, PartitionOptions, partition, simulate


def nodes_of(fn, *inputs):
    return {n.name: n for n in trace_joint(fn, *inputs).graph_module.graph.nodes}


def test_operators_have_seconds_and_inputs_have_none():
    nodes = nodes_of(lambda x, w: (x @ w).exp(), rand(8, 8), rand(8, 8))
    measured = Measured()
    assert measured.seconds(nodes["mm"]) > 0
    assert measured.seconds(nodes["arg0_1"]) is None
    assert measured.scratch(nodes["arg0_1"]) == 0


def test_equal_calls_are_measured_once():
    nodes = nodes_of(lambda x: x.sin().sin().cos(), rand(8, 8))
    measured = Measured()
    assert measured.measure(nodes["sin"]) is measured.measure(nodes["sin_1"])
    assert measured.measure(nodes["sin"]) is not measured.measure(nodes["cos"])


def test_what_an_operator_only_returns_is_no_scratch():
    nodes = nodes_of(lambda x, w: (x @ w).exp(), rand(64, 64), rand(64, 64))
    assert Measured().scratch(nodes["exp"]) == 0


def test_memory_used_inside_counts():
    """A median copies what it partitions."""
    nodes = nodes_of(lambda x: torch.linalg.vector_norm(x.median(0)[0]), rand(512, 64))
    assert Measured().scratch(nodes["median"]) >= 512 * 64 * 4


def test_random_state_is_left_alone():
    nodes = nodes_of(lambda x: F.dropout(x, 0.5), rand(64))
    torch.manual_seed(0)
    wanted = torch.rand(1)
    torch.manual_seed(0)
    for node in nodes.values():
        Measured().measure(node)
    assert torch.equal(torch.rand(1), wanted)


def test_operators_that_made_up_arguments_do_not_suit_are_unknown():
    """Whole numbers are made up as zeros, by which nothing can be divided."""
    whole = torch.arange(1, 5)
    nodes = nodes_of(lambda x, n: x * torch.div(n, n, rounding_mode="floor"), rand(4), whole)
    assert Measured().measure(nodes["div"]) is None


def test_a_simulation_counts_scratch_where_it_is_used():
    part = partition(trace_joint(conv_relu, rand(2, 3, 8, 8), rand(4, 3, 3, 3)))
    plain = simulate(part)
    more = simulate(part, PartitionOptions(scratch=lambda n: 5000 if "conv" in n.name else 0))
    changed = {m.name for m, o in zip(more.moments, plain.moments, strict=True) if m != o}
    assert changed == {"convolution", "convolution_backward"}


def test_measured_seconds_and_symbolic_sizes_serve_partitioners():
    measured = Measured()
    joint = trace_joint(conv_relu, rand(2, 3, 8, 8), rand(4, 3, 3, 3), dynamic=True)
    options = PartitionOptions(seconds=measured.seconds, budget=0.5)
    assert simulate(partition(joint, "budget", options)).peak > 0
