"""``aot_function`` and ``aot_module``: traced at the first call of each kind."""

import pytest
import torch
from helpers import run_graph, save_everything
from torch import nn

from fxstack_functionalize import UnsupportedGraphError, aot_function, aot_module

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


@pytest.mark.parametrize(
    "other", [torch.ones(4), torch.ones(3).double(), torch.ones(3, requires_grad=True)]
)
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
    assert torch.equal(
        aot_function(lambda x: x * constant, **COMPILE)(torch.ones(3)), torch.ones(3)
    )


def test_function_without_source():
    fn = eval("lambda x: x * 2")
    assert torch.equal(aot_function(fn, **COMPILE)(torch.ones(3)), torch.full((3,), 2.0))


def test_lazy_module():
    module = nn.LazyLinear(4)
    compiled = aot_module(module, **COMPILE)
    for _ in range(2):
        assert torch.equal(compiled(torch.ones(2, 3)), module(torch.ones(2, 3)))
