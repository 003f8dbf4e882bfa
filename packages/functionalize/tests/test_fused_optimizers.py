"""Steps of fused optimizers beside eager's own kernels: parameters, states, version counters."""

import pytest
import torch
from helpers import run_graph

from fxstack_functionalize import aot

optim = torch.optim
KINDS = {
    "adam": lambda p: optim.Adam(p, lr=0.1, fused=True),
    "adam, decayed": lambda p: optim.Adam(p, lr=0.1, weight_decay=0.1, maximize=True, fused=True),
    "adamw": lambda p: optim.AdamW(p, lr=0.1, weight_decay=0.1, fused=True),
    "amsgrad": lambda p: optim.AdamW(p, lr=0.1, amsgrad=True, fused=True),
    "adam of a tensor": lambda p: optim.Adam(p, lr=torch.tensor(0.1), fused=True),
    "sgd": lambda p: optim.SGD(p, lr=0.1, fused=True),
    "momentum": lambda p: optim.SGD(p, lr=0.1, momentum=0.9, dampening=0.1, fused=True),
    "nesterov": lambda p: optim.SGD(p, lr=0.1, momentum=0.9, nesterov=True, weight_decay=0.1, fused=True),
    "adagrad": lambda p: optim.Adagrad(p, lr=0.1, lr_decay=0.1, weight_decay=0.1, fused=True),
}


def steps(kind, dtype, call):
    """Three steps, the fused operator's call made by ``call``; everything that they change."""
    torch.manual_seed(3)
    params = [torch.randn(3, 4, dtype=dtype), torch.randn(4, 3, dtype=dtype).t()]
    params += [torch.randn(3, 4, dtype=dtype) for _ in range(3)]  # the nodes of the first, repeated
    params = [param.requires_grad_() for param in params]
    optimizer = KINDS[kind](params)
    names = [name for name in vars(torch) if name.startswith("_fused_") and name.endswith("_")]
    with pytest.MonkeyPatch.context() as patch:
        for name in names:
            patch.setattr(torch, name, call(getattr(torch, name)))
        for _ in range(3):
            for param in params:
                param.grad = torch.randn_like(param)
            optimizer.step()
    states = [value for state in optimizer.state.values() for value in state.values()]
    return [*params, *(param.grad for param in params), *states]


def ahead_of_time(operator):
    """The operator's call as a graph that is traced, with its tensors as inputs."""

    def call(*lists, **options):
        tensors = [tensor for each in lists for tensor in each]
        tensors += [value for value in options.values() if isinstance(value, torch.Tensor)]
        graph = torch.fx.Graph()
        nodes = {id(tensor): graph.placeholder(f"x{at}") for at, tensor in enumerate(tensors)}
        own = lambda value: nodes.get(id(value), value)
        args = tuple([own(tensor) for tensor in each] for each in lists)
        graph.call_function(operator, args, {name: own(v) for name, v in options.items()})
        graph.output(())
        module = torch.fx.GraphModule(torch.nn.Module(), graph)
        aot(module, tensors, fw_compiler=run_graph, partitioner=None)(*tensors)

    return call


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64, torch.bfloat16])
def test_as_eager(kind, dtype):
    ours, eager = steps(kind, dtype, ahead_of_time), steps(kind, dtype, lambda operator: operator)
    tol = 1e-2 if dtype is torch.bfloat16 else 1e-6
    torch.testing.assert_close(ours, eager, rtol=tol, atol=tol)
    assert [t._version for t in ours] == [t._version for t in eager]
    assert [t.stride() for t in ours] == [t.stride() for t in eager]


@pytest.mark.parametrize("infinite", [0.0, 1.0])
@pytest.mark.parametrize("name", ["_fused_adamw_", "_fused_sgd_"])
def test_scaled_gradients(name, infinite):
    def changed(call):
        torch.manual_seed(3)
        lists = [[torch.rand(3, 4)] for _ in range(5 if name == "_fused_adamw_" else 3)]
        options = {"lr": 0.1, "weight_decay": 0.1, "maximize": False}
        if name == "_fused_adamw_":
            lists += [[torch.tensor(3.0)]]
            options |= {"beta1": 0.9, "beta2": 0.99, "eps": 1e-8, "amsgrad": True}
        else:
            options |= {"momentum": 0.9, "dampening": 0.0, "nesterov": False}
            options |= {"is_first_step": False}
        scale = {"grad_scale": torch.tensor(4.0), "found_inf": torch.tensor(infinite)}
        call(getattr(torch, name))(*lists, **options, **scale)
        return lists

    torch.testing.assert_close(changed(ahead_of_time), changed(lambda operator: operator))
