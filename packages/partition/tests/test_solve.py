"""The minimum cut is minimal, unique and the same in every process."""

import os
import subprocess
import sys
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from joint_programs import PROGRAMS
from joints import trace_joint

from fxstack_partition import PartitionOptions, analyze, corpus
from fxstack_partition.mincut.network import SINK, SOURCE, Edge, Network, build_flow_network
from fxstack_partition.mincut.solve import SOLVERS, InfeasibleError
from fxstack_partition.policy.policy import MIN_CUT_RULES


def network(count, edges):
    """Vertices 0 (source), 1 (sink) and ``count`` more; edges as (start, end) -> capacity or None."""
    names = ("source", "sink", *(f"n{i}" for i in range(count)))
    return Network(names, tuple(Edge(*ends, c) for ends, c in edges.items()), {}, {})


@st.composite
def networks(draw, capacities):
    count = draw(st.integers(1, 7))
    order = [SOURCE, *range(2, count + 2), SINK]
    edges = {}
    for i, start in enumerate(order):
        for end in order[i + 1 :]:
            capacity = draw(capacities)
            if capacity is not None:
                edges[start, end] = None if capacity < 0 and start != SOURCE else abs(capacity)
    return network(count, edges)


SMALL = st.one_of(st.none(), st.integers(-1, 5))
LARGE = st.one_of(st.none(), st.integers(0, 3), st.integers(2**28, 2**34), st.integers(0, 2**58))


def cut_value(network, sink_side):
    cut = [e.capacity for e in network.edges if e.start not in sink_side and e.end in sink_side]
    return float("inf") if None in cut else sum(cut)


def nearest_cut(network):
    """By trying every side."""
    inner = range(2, len(network.names))
    masks = range(2 ** len(inner))
    sides = [frozenset([SINK, *(n for n in inner if mask >> (n - 2) & 1)]) for mask in masks]
    least = min(cut_value(network, side) for side in sides)
    return frozenset.intersection(*(s for s in sides if cut_value(network, s) == least))


@pytest.mark.parametrize("solver", SOLVERS)
@settings(max_examples=40, deadline=None)
@given(networks(SMALL))
def test_solvers_return_the_minimum_cut_nearest_to_the_sink(solver, network):
    assert SOLVERS[solver](network) == nearest_cut(network)


@settings(max_examples=40, deadline=None)
@given(networks(LARGE))
def test_capacities_beyond_32_bits_are_exact(network):
    assert SOLVERS["scipy"](network) == nearest_cut(network)


@pytest.mark.parametrize("solver", SOLVERS)
def test_a_contradiction_names_its_path(solver):
    impossible = network(2, {(SOURCE, 2): None, (2, 3): None, (3, SINK): None, (SOURCE, SINK): 4})
    with pytest.raises(InfeasibleError, match="along n0 -> n1 every value is both impossible"):
        SOLVERS[solver](impossible)


@pytest.mark.parametrize("name", ["mlp", "unet_symbolic", "softmaxes"])
def test_solvers_agree_on_the_corpus(name):
    network = build_flow_network(analyze(corpus.load(name)), MIN_CUT_RULES, PartitionOptions())
    assert SOLVERS["scipy"](network) == SOLVERS["networkx"](network)


@pytest.mark.parametrize("program", PROGRAMS)
def test_solvers_agree_with_networkx_on_joint_graphs(program):
    fn, inputs = PROGRAMS[program]
    network = build_flow_network(analyze(trace_joint(fn, *inputs())), MIN_CUT_RULES, PartitionOptions())
    expected = SOLVERS["networkx"](network)
    assert all(solver(network) == expected for solver in SOLVERS.values())


SCRIPT = """
from joints import trace_joint
from joint_programs import mlp, rand
from fxstack_partition import partition
for name in ("save_all", "min_cut", "budget", "ilp", "sac"):
    part = partition(trace_joint(mlp, rand(6, 5), rand(5, 7), rand(7, 3)), name)
    print(part.saved, part.recomputed, part.backward.graph_module.code)
"""


def test_the_cut_does_not_depend_on_the_hash_seed():
    def run(seed):
        env = {**os.environ, "PYTHONHASHSEED": seed}
        here = Path(__file__).parent
        done = subprocess.run(
            [sys.executable, "-c", SCRIPT], cwd=here, env=env, capture_output=True, check=True
        )
        return done.stdout

    assert run("1") == run("2") != b""
