"""``aot_function`` and ``aot_module``: traced at the first call of each kind."""

import dataclasses

import pytest
import torch
from functorch.compile import make_boxed_func, nop
from helpers import run_graph, save_everything
from torch import nn
from torch.utils import _pytree as pytree

from fxstack_functionalize import (
    CompilerContractError,
    UnsupportedGraphError,
    aot_function,
    aot_module,
    trace_joint,
)

COMPILE = {"fw_compiler": run_graph, "partitioner": save_everything}


class Count:
    def __init__(self):
        self.graphs = 0

    def __call__(self, module, example_inputs):
        self.graphs += 1
        return module.forward


def test_nested_arguments_and_constants():
    f = lambda data, *, scale=1: {"y": data["a"][0] * scale + data["b"], "n": scale}
    count = Count()
    g = aot_function(f, fw_compiler=count, partitioner=save_everything)
    data = {"a": [torch.ones(3)], "b": torch.ones(3)}
    for scale in (1, 2, 2):
        assert torch.equal(g(data, scale=scale)["y"], f(data, scale=scale)["y"])
    assert count.graphs == 2


@pytest.mark.parametrize("other", [torch.ones(4), torch.ones(3).double(), torch.ones(3, requires_grad=True)])
def test_new_metadata_traces_again(other):
    count = Count()
    g = aot_function(lambda x: x * 2, fw_compiler=count, partitioner=save_everything)
    g(torch.ones(3)), g(torch.zeros(3)), g(other)
    assert count.graphs == 2


def test_grad_mode_traces_again():
    g = aot_function(lambda x: x * 2, **COMPILE)
    x = torch.ones(3, requires_grad=True)
    assert g(x).requires_grad
    with torch.no_grad():
        assert not g(x).requires_grad


def test_module_shares_parameters_and_mode():
    module = nn.Sequential(nn.Linear(3, 4), nn.BatchNorm1d(4), nn.Dropout(0.5))
    compiled = aot_module(module, **COMPILE)
    x = torch.randn(5, 3)
    torch.manual_seed(0), compiled(x).sum().backward()
    grads = [p.grad.clone() for p in module.parameters()]
    module.zero_grad(), torch.manual_seed(0), module(x).sum().backward()
    assert all(torch.equal(a, p.grad) for a, p in zip(grads, module.parameters()))
    assert torch.equal(compiled.eval()(x), module(x))
    with torch.no_grad():
        module[0].weight.mul_(2)
    assert torch.equal(compiled(x), module(x))


def test_closure_tensor_with_gradient_is_refused():
    weight = torch.ones(3, requires_grad=True)
    with pytest.raises(UnsupportedGraphError, match="requires a gradient but is no input"):
        aot_function(lambda x: x * weight, **COMPILE)(torch.ones(3))


def test_closure_tensor_is_a_constant():
    constant = torch.ones(3)
    assert torch.equal(aot_function(lambda x: x * constant, **COMPILE)(torch.ones(3)), torch.ones(3))


def test_function_without_source():
    fn = eval("lambda x: x * 2")
    assert torch.equal(aot_function(fn, **COMPILE)(torch.ones(3)), torch.full((3,), 2.0))


def test_lazy_module():
    module = nn.LazyLinear(4)
    compiled = aot_module(module, **COMPILE)
    for _ in range(2):
        assert torch.equal(compiled(torch.ones(2, 3)), module(torch.ones(2, 3)))


@dataclasses.dataclass
class Pair:
    first: torch.Tensor
    second: object


pytree.register_dataclass(Pair)


class SumOfPair(nn.Module):
    def forward(self, pair, *, scale=1.0):
        return {"sum": Pair((pair.first + pair.second[0]) * scale, ("name", None))}


@pytest.mark.parametrize("make", [aot_function, aot_module])
def test_registered_containers(make):
    pair = Pair(torch.ones(3, requires_grad=True), [torch.ones(3)])
    plain = SumOfPair()
    ours, eager = make(plain, **COMPILE)(pair, scale=2.0)["sum"], plain(pair, scale=2.0)["sum"]
    assert torch.equal(ours.first, eager.first)
    assert ours.second == eager.second
    (grad,) = torch.autograd.grad(ours.first.sum(), pair.first)
    assert torch.equal(grad, torch.full((3,), 2.0))


def test_zeros_of_both_signs_are_two_constants():
    f = aot_function(lambda x, by: x / by, **COMPILE)
    one = torch.ones(1)
    for zero in (0.0, -0.0, 0j, -0j):
        assert str(f(one, zero)) == str(one / zero)


def test_sparse_arguments():
    f = aot_function(lambda x: x.to_dense() * 2, **COMPILE)
    assert torch.equal(f(torch.eye(2).to_sparse()), torch.eye(2) * 2)


def test_compilers_of_torch():
    """Both are given by position there, and mark what takes a list of arguments otherwise."""
    graphs = []

    def backward(module, inputs):
        graphs.append(module)
        return make_boxed_func(module.forward)

    x = torch.ones(3, requires_grad=True)
    aot_function(lambda x: x.sin() * 2, nop, backward, partitioner=save_everything)(x).sum().backward()
    assert torch.allclose(x.grad, 2 * x.detach().cos())
    assert len(graphs) == 1


GRAPH = torch.fx.symbolic_trace(lambda x: x * 2)


def no_partition(joint):
    return None


@pytest.mark.parametrize(
    ("call", "error", "text"),
    [
        (lambda: aot_function(lambda x: x, run_graph), TypeError, "'partitioner'"),
        (lambda: aot_function(lambda x: x, None, partitioner=save_everything), TypeError, "fw_comp"),
        (lambda: aot_function(lambda x: x, **COMPILE, partition_fn=1), TypeError, "partition_fn"),
        (lambda: aot_function(3, **COMPILE), TypeError, "fn must be callable"),
        (lambda: aot_module(lambda x: x, **COMPILE), TypeError, "use aot_function"),
        (lambda: aot_function(lambda x, s: x, **COMPILE)(torch.ones(2), {1}), TypeError, "hashable"),
        (lambda: trace_joint(lambda x: x, [torch.ones(2)]), TypeError, "is a torch.fx.GraphModule"),
        (lambda: trace_joint(GRAPH, torch.ones(1, 2)), TypeError, "a list or tuple"),
        (
            lambda: trace_joint(GRAPH, [torch.ones(2)], decompositions=[torch.ops.aten.silu]),
            TypeError,
            "get_decompositions",
        ),
        (
            lambda: aot_function(lambda x: x * 2, run_graph, partitioner=no_partition)(
                torch.ones(2, requires_grad=True)
            ),
            CompilerContractError,
            "not a Partition",
        ),
    ],
)
def test_mistakes_are_named(call, error, text):
    with pytest.raises(error, match=text):
        call()
