"""Operators on lists are recorded once for tensors of equal metadata; the nodes are those of single recordings."""

import pytest
import torch
from helpers import save_everything

from fxstack_functionalize import aot_function
from fxstack_functionalize.tracer import repeated_calls
from fxstack_interchange.operators.list_operators import ForEach

aten = torch.ops.aten
TABLE = {
    aten._foreach_add.List: ForEach(lambda x, y, alpha=1: torch.add(x.sin(), y, alpha=alpha)),
    aten._foreach_mul.Scalar: ForEach(torch.mul),
    aten._foreach_addcmul.Scalar: ForEach(torch.addcmul, scaled=True),
    aten._foreach_neg.default: ForEach(lambda x: x if x.dim() == 1 else torch.neg(x)),
}


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


def negated(*tensors):
    return tuple(torch._foreach_neg(list(tensors)))


PROGRAMS = {
    "equal": (added, of_shapes(*[(2, 3)] * 8)),
    "two shapes": (added, of_shapes(*[(2, 3), (4,)] * 4)),
    "strides": (added, [x.t() if k % 3 else x for k, x in enumerate(of_shapes(*[(3, 3)] * 8))]),
    "dtypes": (added, [x.double() if k % 3 else x for k, x in enumerate(of_shapes(*[(3, 3)] * 8))]),
    "one operand twice": (doubled, of_shapes(*[(2, 3)] * 4)),
    "in place": (changed, of_shapes(*[(2, 3)] * 6)),
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
