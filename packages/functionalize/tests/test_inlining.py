"""Operators that only call their function: their graphs are those of the plain call."""

from operator import getitem

import pytest
import torch
from torch.fx import Graph, GraphModule, symbolic_trace

from fxstack_functionalize import UnsupportedGraphError, trace_inference, trace_joint
from fxstack_functionalize.operators.inlining import inline_operators

OPERATORS = torch.ops.higher_order
X = torch.randn(3, 3)


def calling(operator, arguments, *, fn=lambda a: (a.sin() * 2,), requires_grad=False):
    """A graph that calls ``operator``. ``arguments`` makes the node's arguments of the function's node and the input."""
    graph = Graph()
    x = graph.placeholder("x")
    body = graph.get_attr("body_0")
    args, kwargs = arguments(body, x)
    node = graph.call_function(operator, args, kwargs)
    node.meta["val"] = (X.clone().requires_grad_(requires_grad),)
    graph.output((graph.call_function(torch.add, (graph.call_function(getitem, (node, 0)), 1)),))
    return GraphModule({"body_0": symbolic_trace(fn)}, graph)


CALLS = {
    "wrap": (OPERATORS.wrap, lambda f, x: ((f, x), {})),
    "hints": (OPERATORS.hints_wrapper, lambda f, x: ((f, (x,), {}), {"hints": {"k": 1}})),
    "strict": (OPERATORS.strict_mode, lambda f, x: ((f, (x,)), {})),
    "foreach": (OPERATORS.foreach_map, lambda f, x: ((f, x), {})),
}


@pytest.mark.parametrize("name", CALLS)
def test_the_function_is_part_of_the_graph(name):
    stage = trace_inference(calling(*CALLS[name]), [X])
    targets = [str(n.target) for n in stage.graph_module.graph.nodes if n.op == "call_function"]
    assert targets == ["aten.sin.default", "aten.mul.Tensor", "aten.add.Tensor"]
    assert torch.equal(stage.graph_module(X)[0], X.sin() * 2 + 1)


def test_gradients_are_those_of_the_function():
    stage = trace_joint(calling(*CALLS["wrap"]), [X.clone().requires_grad_()])
    assert any("cos" in str(node.target) for node in stage.graph_module.graph.nodes)


@pytest.mark.parametrize("name", ["hints", "strict"])
def test_a_gradient_of_an_operator_without_one_is_refused(name):
    with pytest.raises(UnsupportedGraphError, match="requires a gradient"):
        trace_joint(calling(*CALLS[name], requires_grad=True), [X.clone().requires_grad_()])


def test_the_grad_mode_is_restored_after_the_function():
    arguments = lambda f, x: ((False, f, x), {})  # noqa: E731
    module = inline_operators(calling(OPERATORS.wrap_with_set_grad_enabled, arguments))
    modes = [n.args[0] for n in module.graph.nodes if n.target is torch._C._set_grad_enabled]
    assert modes == [False, True]


def test_autocast_applies_to_the_function():
    arguments = lambda f, x: (("cpu", torch.bfloat16, True, None, f, x), {})  # noqa: E731
    fn = lambda a: (a @ a,)  # noqa: E731
    stage = trace_inference(calling(OPERATORS.wrap_with_autocast, arguments, fn=fn), [X])
    result = stage.graph_module(X)[0]
    assert torch.equal(result, (X.bfloat16() @ X.bfloat16()) + 1) and not torch.is_autocast_enabled("cpu")


def test_nested_graphs_of_other_operators_are_inlined_too():
    branch = calling(*CALLS["wrap"])
    graph = Graph()
    x = graph.placeholder("x")
    nodes = [graph.get_attr(name) for name in ("yes", "no")]
    chosen = graph.call_function(OPERATORS.cond, (graph.placeholder("p"), *nodes, (x,)))
    graph.output((graph.call_function(getitem, (chosen, 0)),))
    module = inline_operators(GraphModule({"yes": branch, "no": branch}, graph))
    inner = [n.target for g in module.modules() if isinstance(g, GraphModule) for n in g.graph.nodes]
    assert OPERATORS.wrap not in inner
    assert torch.equal(module(X, torch.tensor(True))[0], X.sin() * 2 + 1)


def test_a_graph_without_such_operators_is_itself():
    module = symbolic_trace(lambda x: x + 1)
    assert inline_operators(module) is module
