"""Operators on lists are recorded once for tensors of equal metadata; the nodes are those of single recordings."""

import pytest
import torch
from helpers import save_everything
from torch.fx import symbolic_trace

from fxstack_functionalize import aot, aot_function
from fxstack_functionalize.tracer import repeated_calls
from fxstack_functionalize.tracing import repeated_changes
from fxstack_interchange.operators.list_operators import ForEach

aten = torch.ops.aten
TABLE = {
    aten._foreach_add.List: ForEach(lambda x, y, alpha=1: torch.add(x.sin(), y, alpha=alpha)),
    **{getattr(aten._foreach_add, name): ForEach(torch.add) for name in ("Scalar", "ScalarList", "Tensor")},
    **{
        getattr(aten._foreach_mul, name): ForEach(torch.mul)
        for name in ("Scalar", "List", "ScalarList", "Tensor")
    },
    aten._foreach_addcmul.ScalarList: ForEach(torch.addcmul, scaled=True),
    aten._foreach_addcmul.Scalar: ForEach(torch.addcmul, scaled=True),
    aten._foreach_neg.default: ForEach(lambda x: x if x.dim() == 1 else torch.neg(x)),
}
EAGER_TABLE = {**TABLE, aten._foreach_add.List: ForEach(torch.add)}


def of_shapes(*shapes):
    return [torch.randn(shape) for shape in shapes]


def added(*tensors):
    half = len(tensors) // 2
    return tuple(torch._foreach_add(list(tensors[:half]), list(tensors[half:]), alpha=2))


def doubled(*tensors):
    return tuple(torch._foreach_add(list(tensors), list(tensors)))


def changed(*tensors):
    torch._foreach_mul_(list(tensors[:3]), 3.0)
    torch._foreach_addcmul_(list(tensors[:3]), list(tensors[3:]), list(tensors[3:]), 0.5)


@torch.no_grad()
def stepped(*tensors):
    """Change tensors in lists: by others, by themselves, by a number for each, and by a number for all."""
    third = len(tensors) // 3
    values, others, more = (list(tensors[k * third : (k + 1) * third]) for k in range(3))
    torch._foreach_add_(values, others, alpha=2)
    torch._foreach_addcmul_(values, others, others, [0.5 + k // 2 for k in range(third)])
    torch._foreach_add_(more, more)
    torch._foreach_mul_(more, values[0].sum())
    torch._foreach_mul_(values, 3.0)


def negated(*tensors):
    return tuple(torch._foreach_neg(list(tensors)))


PROGRAMS = {
    "equal": (added, of_shapes(*[(2, 3)] * 8)),
    "two shapes": (added, of_shapes(*[(2, 3), (4,)] * 4)),
    "strides": (added, [x.t() if k % 3 else x for k, x in enumerate(of_shapes(*[(3, 3)] * 8))]),
    "dtypes": (added, [x.double() if k % 3 else x for k, x in enumerate(of_shapes(*[(3, 3)] * 8))]),
    "one operand twice": (doubled, of_shapes(*[(2, 3)] * 4)),
    "in place": (changed, of_shapes(*[(2, 3)] * 6)),
    "lists of equal tensors": (stepped, of_shapes(*[(2, 3)] * 15)),
    "lists of two shapes": (stepped, of_shapes(*[(2, 3), (4,), (2, 3), (4,), (2, 3)] * 3)),
    "lists with gaps": (stepped, [x[:, ::2] for x in of_shapes(*[(2, 6)] * 15)]),
    "lists of transposed tensors": (
        stepped,
        [x.t() if k % 2 else x for k, x in enumerate(of_shapes(*[(3, 3)] * 15))],
    ),
    "results that are operands": (negated, of_shapes((2, 3), (4,), (4,), (2, 3))),
}


def run(fn, inputs, table=TABLE):
    graphs = []

    def compiler(graph, _inputs):
        graphs.append(graph)
        return graph.forward

    given = [x.clone() for x in inputs]
    results = aot_function(fn, compiler, partitioner=save_everything, decompositions=table)(*given)
    return graphs, results, given


@pytest.mark.parametrize("name", PROGRAMS)
def test_graphs_and_values_are_those_of_single_calls(name, monkeypatch):
    fn, inputs = PROGRAMS[name]
    (graph,), results, given = run(fn, inputs)
    monkeypatch.setattr(repeated_calls, "_kind_of_call", lambda *_: None)
    monkeypatch.setattr(repeated_changes, "_kind_of_row", lambda *_: None)
    (single,), wanted, changed_inputs = run(fn, inputs)
    assert graph.code == single.code
    for node, other in zip(graph.graph.nodes, single.graph.nodes, strict=True):
        if isinstance(node.meta.get("val"), torch.Tensor):
            assert node.meta["val"].stride() == other.meta["val"].stride()
            assert node.meta["val"].dtype == other.meta["val"].dtype
    torch.testing.assert_close((results, given), (wanted, changed_inputs))


def test_the_function_runs_once_for_equal_tensors():
    runs = []
    table = {aten._foreach_neg.default: ForEach(lambda x: runs.append(x) or torch.neg(x))}
    run(negated, of_shapes(*[(2, 3)] * 5, (4,)), table)
    assert len(runs) == 2


IN_LISTS = [name for name, (fn, _) in PROGRAMS.items() if fn is stepped]


def run_steps(inputs):
    """Return the graph of ``stepped``, and the tensors that it has changed."""
    graphs = []
    names = ", ".join(f"x{k}" for k in range(len(inputs)))
    captured = symbolic_trace(eval(f"lambda {names}: fn({names})", {"fn": stepped}))  # noqa: S307
    given = [x.clone() for x in inputs]
    with torch.no_grad():
        compiler = lambda graph, _inputs: graphs.append(graph) or graph.forward
        stages = {"fw_compiler": compiler, "partitioner": save_everything}
        aot(captured, given, decompositions=EAGER_TABLE, **stages)(*given)
    return graphs[0], given


@pytest.mark.parametrize("name", IN_LISTS)
def test_changed_lists_have_eagers_values_strides_and_versions(name):
    _, inputs = PROGRAMS[name]
    _, compiled = run_steps(inputs)
    eager = [x.clone() for x in inputs]
    stepped(*eager)
    torch.testing.assert_close(compiled, eager)
    assert [(x.stride(), x._version) for x in compiled] == [(x.stride(), x._version) for x in eager]


@pytest.mark.parametrize("name", IN_LISTS)
def test_repeated_changes_have_the_nodes_of_single_changes(name, monkeypatch):
    _, inputs = PROGRAMS[name]
    graph, _ = run_steps(inputs)
    monkeypatch.setattr(repeated_changes, "_kind_of_row", lambda *_: None)
    single, _ = run_steps(inputs)
    assert graph.code == single.code


def test_list_operators_change_one_of_equal_tensors(monkeypatch):
    calls = []
    found = repeated_changes._found
    monkeypatch.setattr(repeated_changes, "_found", lambda *args: calls.append(args) or found(*args))
    run_steps(of_shapes(*[(2, 3)] * 15))
    assert 0 < len(calls) < 12
