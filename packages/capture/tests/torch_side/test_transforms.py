"""``torch.func`` in a trace: the graph holds plain operators, layers never outlive a trace, dead wrappers are refused."""

import sys

import pytest
import torch
from torch._C import _functorch
from torch.func import functional_call, grad, hessian, jacfwd, jacrev, jvp, vjp, vmap

import fxstack_capture as fx

X = torch.tensor([[1.0, 2.0], [3.0, 4.0]])


def targets(fn, *args):
    graph = fx.capture(fn, *args).graph_module.graph
    return [str(node.target) for node in graph.nodes if node.op.startswith("call")]


def test_vmap_becomes_the_batched_operators():
    assert targets(lambda x: vmap(lambda a: a.sin().sum())(x), X) == [
        "aten.sin.default",
        "aten.sum.dim_IntList",
    ]


def test_a_gradient_becomes_forward_and_backward_operators():
    found = targets(lambda x: grad(lambda a: a.sin().sum())(x), X)
    assert found[0] == "aten.sin.default" and "aten.cos.default" in found
    assert "aten.detach.default" not in found


@pytest.mark.parametrize(
    "fn",
    [
        lambda x: vmap(lambda a: a @ X)(x),
        lambda x: grad(lambda a: (a @ X).sum())(x),
        lambda x: jvp(torch.sin, (x,), (X,)),
        lambda x: jacfwd(lambda a: a * X)(x),
        lambda x: vjp(torch.exp, x)[1](X),
    ],
)
def test_every_node_says_where_it_comes_from(fn):
    captured = fx.capture(fn, X)
    nodes = [n for n in captured.graph_module.graph.nodes if n.op.startswith("call")]
    assert all("test_transforms.py" in node.meta["stack_trace"] for node in nodes)


def test_zero_tangents_leave_nothing_in_the_graph():
    scale = torch.ones(2)
    found = targets(lambda x: jvp(lambda a: torch.layer_norm(a, (2,), scale), (x,), (x,)), X)
    assert not any("zero" in name or "prims" in name for name in found)
    assert "aten.native_layer_norm.default" in found


def test_state_is_what_each_operator_needs():
    def fn(x):
        with torch.no_grad():
            return grad(lambda a: (a * a).sum())(x)

    x = X.clone().requires_grad_()
    assert not fx.capture(fn, x)(x).requires_grad


@pytest.mark.parametrize(
    "bad",
    [
        lambda x: vmap(lambda a: print(end="", file=sys.stderr) or a.sum())(x),
        lambda x: grad(lambda a: print(end="", file=sys.stderr) or a.sum())(x),
        lambda x: jvp(lambda a: a if a.sum() > 0 else -a, (x,), (x,)),
        lambda x: hessian(lambda a: print(end="", file=sys.stderr) or a.sum())(x),
        lambda x: jacrev(jacfwd(lambda a: print(end="", file=sys.stderr) or a))(x),
    ],
)
def test_no_layer_outlives_a_trace_that_is_given_up(bad):
    with pytest.raises(fx.Unsupported):
        fx.capture(bad, X)
    assert _functorch.get_dynamic_layer_stack_depth() == 0
    assert torch.autograd.forward_ad._current_level == -1
    assert torch._C._autograd._saved_tensors_hooks_is_enabled()
    assert torch._C._is_fwd_grad_enabled()


def test_an_exception_inside_leaves_no_layer():
    def fails(a):
        raise KeyError(a.dim())

    with pytest.raises(KeyError, match="1"):
        fx.optimize(fullgraph=True)(lambda x: vmap(fails)(x))(X)
    assert _functorch.get_dynamic_layer_stack_depth() == 0


def test_what_is_left_of_a_wrapper_runs_in_plain_python():
    kept = []
    vmap(lambda a: kept.append(a) or a)(X)
    grad(lambda a: kept.append(a) or a.sum())(X)
    for wrapper in kept:
        with pytest.raises(fx.Unsupported, match="inside a torch.func transform"):
            fx.capture(lambda x: x + 1, wrapper)


def test_classes_as_keys_are_guarded_one_by_one():
    class Known: ...

    class Other: ...

    table = {int: 2.0, Known: 3.0}
    graphs = []

    def backend(graph_module, _inputs):
        graphs.append(graph_module)
        return graph_module.forward

    fn = fx.optimize(backend)(lambda x, cls: x * table.get(cls, 1.0))
    assert [fn(X, cls)[0, 0].item() for cls in (int, Known, Other)] == [2.0, 3.0, 1.0]
    assert len(graphs) == 3
    table[str] = 7.0  # nobody has asked for it
    assert [fn(X, cls)[0, 0].item() for cls in (int, Known, Other)] == [2.0, 3.0, 1.0]
    assert len(graphs) == 3
    table[Other], table[Known] = 5.0, 4.0
    assert [fn(X, cls)[0, 0].item() for cls in (int, Known, Other)] == [2.0, 4.0, 5.0]
    del table[int]
    assert [fn(X, cls)[0, 0].item() for cls in (int, Known, Other)] == [1.0, 4.0, 5.0]


def test_a_module_called_with_other_parameters_keeps_its_own():
    model = torch.nn.Linear(2, 2)
    own = dict(model.named_parameters())
    fn = fx.optimize(fullgraph=True)(
        lambda x: functional_call(model, {name: p * 0 + 1 for name, p in own.items()}, (x,))
    )
    assert torch.equal(fn(X), X.sum(1, keepdim=True).expand(2, 2) + 1)
    assert all(own[name] is p for name, p in model.named_parameters())
