"""The minimum cut is minimal, unique and the same in every process."""

import os
import subprocess
import sys
from pathlib import Path

import networkx as nx
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from joint_programs import PROGRAMS
from joints import trace_joint

from fxstack_partition import PartitionOptions, analyze
from fxstack_partition.network import SINK, SOURCE, Network, build
from fxstack_partition.policy import MIN_CUT_RULES
from fxstack_partition.solve import SOLVERS


@st.composite
def networks(draw):
    count = draw(st.integers(1, 7))
    graph = nx.DiGraph()
    names = [SOURCE, *(f"n{i}" for i in range(count)), SINK]
    graph.add_nodes_from(names)
    for i, start in enumerate(names):
        for end in names[i + 1 :]:
            capacity = draw(st.one_of(st.none(), st.integers(0, 5)))
            if capacity is not None:
                graph.add_edge(start, end, capacity=capacity)
    total = sum(d["capacity"] for *_, d in graph.edges(data=True))
    return Network(graph, {}, {}, total + 1)


def cut_value(graph, sink_side):
    edges = graph.edges(data=True)
    return sum(d["capacity"] for a, b, d in edges if a not in sink_side and b in sink_side)


@settings(max_examples=60, deadline=None)
@given(networks())
def test_the_cut_is_minimal_and_nearest_to_the_sink(network):
    graph = network.graph
    inner = [n for n in graph if n not in (SOURCE, SINK)]
    sides = [
        frozenset([SINK, *(n for i, n in enumerate(inner) if mask >> i & 1)])
        for mask in range(2 ** len(inner))
    ]
    least = min(cut_value(graph, side) for side in sides)
    smallest = frozenset.intersection(*(s for s in sides if cut_value(graph, s) == least))
    for solver in SOLVERS.values():
        assert solver(network) == smallest


@pytest.mark.parametrize("program", PROGRAMS)
def test_solvers_agree_with_networkx_on_joint_graphs(program):
    fn, inputs = PROGRAMS[program]
    network = build(analyze(trace_joint(fn, *inputs())), MIN_CUT_RULES, PartitionOptions())
    expected = SOLVERS["networkx"](network)
    assert all(solver(network) == expected for solver in SOLVERS.values())


SCRIPT = """
from joints import trace_joint
from joint_programs import residual_chain, rand
from fxstack_partition import partition
part = partition(trace_joint(residual_chain, rand(4, 6), rand(6, 6)))
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
