"""Odd joint graphs with next to nothing in them: every partitioner, the check, the simulation and the tables take them."""

import pytest
import torch
from joint_programs import rand
from joints import compare as demand_equal
from joints import trace_joint
from torch._subclasses.fake_tensor import FakeTensorMode
from torch.fx import Graph, GraphModule

from fxstack_interchange import (
    GraphSignature,
    InputKind,
    InputSpec,
    OutputKind,
    OutputSpec,
    Stage,
    StageGraph,
)
from fxstack_partition import (
    BudgetError,
    PartitionOptions,
    check_partition,
    compare,
    explain,
    partition,
    simulate,
)

VALUE = FakeTensorMode().from_tensor(torch.empty(4))
aten = torch.ops.aten


def joint_of(given, calls, results, gradients):
    """Write a joint graph: inputs' names, (name, operator, arguments), outputs' names."""
    graph = Graph()
    nodes = {name: graph.placeholder(name) for name in given}
    for name, target, *args in calls:
        values = tuple(nodes.get(arg, arg) for arg in args)
        nodes[name] = graph.create_node("call_function", target, values, {}, name)
    for node in nodes.values():
        node.meta["val"] = VALUE
    graph.output(tuple(nodes.get(name) for name in (*results, *gradients)))
    kinds = {True: InputKind.TANGENT, False: InputKind.USER_INPUT}
    inputs = [InputSpec(kinds[name == "t"], name, None) for name in given]
    outputs = [OutputSpec(OutputKind.USER_OUTPUT, name) for name in results]
    outputs += [OutputSpec(OutputKind.GRADIENT, name, "x") for name in gradients]
    signature = GraphSignature(Stage.JOINT, tuple(inputs), tuple(outputs), ())
    return StageGraph(GraphModule({}, graph), signature)


SIN = ("y", aten.sin.default, "x")

GRAPHS = {
    "empty": ((), (), (), ()),
    "an input returned": (("x",), (), ("x",), ()),
    "no backward": (("x",), (SIN,), ("y",), ()),
    "no gradient": (("x", "t"), (SIN,), ("y",), (None,)),
    "a tangent as the gradient": (("x", "t"), (SIN,), ("y",), ("t",)),
    "a result as two gradients": (("x", "t"), (SIN,), ("y",), ("y", "y")),
    "a backward alone": (("t",), (("y", aten.sin.default, "t"),), (), ("y",)),
}
CUTS = {"save_all": {}, "min_cut": {}, "sac": {}, "budget": {"budget": 0.0}, "ilp": {"budget": 1.0}}


@pytest.mark.parametrize("graph", GRAPHS)
@pytest.mark.parametrize("name", CUTS)
def test_graphs_without_much(graph, name):
    joint = joint_of(*GRAPHS[graph])
    part = partition(joint, name, PartitionOptions(**CUTS[name]))
    check_partition(joint, part)
    assert simulate(part).peak <= 2 * 16
    assert len(explain(part).saved) == len(part.saved)


@pytest.mark.parametrize("graph", GRAPHS)
def test_tables_of_graphs_without_much(graph):
    assert len(compare(joint_of(*GRAPHS[graph]), ["save_all", "min_cut"], [0.5]).rows) >= 2


@pytest.mark.parametrize("name", ["budget", "ilp"])
def test_a_budget_of_no_bytes_says_what_is_missing(name):
    joint = joint_of(*GRAPHS["no backward"])
    with pytest.raises(BudgetError, match="0 bytes cannot be met: .* 16 bytes, 16 more. Raise"):
        partition(joint, name, PartitionOptions(budget=0))


PROGRAMS = {
    "identity": lambda x: x,
    "one result three times": lambda x: (x.sin(),) * 3,
    "two equal results": lambda x: (x.cumsum(0), x.cumsum(0)),
    "an input and its view": lambda x: (x, x.view(2, 2), x.sin()),
    "a constant": lambda x: (x.sin(), torch.ones(3)),
    "NaN": lambda x: (x * float("nan")).exp(),
    "elements": lambda x: sum(part.sin() for part in x.split(1)),
    "draws of draws": lambda x: torch.bernoulli(torch.rand_like(x)) * x,
}
TAGS = ("must_save", "prefer_save", "must_recompute", "prefer_recompute")


@pytest.mark.parametrize("program", PROGRAMS)
def test_every_node_tagged_alike(program):
    """Whatever the tags demand, what comes out is the joint graph's; what cannot be done twice is not."""
    joint = trace_joint(PROGRAMS[program], rand(4))
    for tag in TAGS:
        options = PartitionOptions(policy=lambda _node, tag=tag: tag, budget=0.5)
        for name in ("min_cut", "sac", "budget"):
            part = partition(joint, name, options)
            check_partition(joint, part)
            demand_equal(joint, part, (rand(4),))


def test_only_symbols_are_saved():
    joint = trace_joint(lambda x: x.sum(), rand(4), dynamic=True)
    part = partition(joint)
    given = part.backward.graph_module.graph.find_nodes(op="placeholder")
    values = [node.meta["val"] for node in given if node.name in part.saved]
    assert values
    assert all(isinstance(value, torch.SymInt) for value in values)
    demand_equal(joint, part, (rand(4),))
    demand_equal(joint, part, (rand(9),))
