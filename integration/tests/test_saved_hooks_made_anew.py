"""Saved-tensor hooks made anew in every step around a compiled call: compiled once, and gradients are eager's."""

import pytest
import torch
from torch.autograd.graph import save_on_cpu, saved_tensors_hooks

import fxstack

MAKERS = {
    "closure": lambda k: saved_tensors_hooks(lambda t: t * k, lambda t: t / 2),
    "packed": lambda _: saved_tensors_hooks(lambda t: (t.dtype, t.double()), lambda p: p[1].to(p[0])),
    "on cpu": lambda _: save_on_cpu(),
    "object": lambda k: saved_tensors_hooks(torch.tensor(k).mul, lambda t: t / 2),
}


def model(x):
    return (x * x).sin().exp()


def inner(x):
    (found,) = torch.autograd.grad((x * x).sum(), x)
    return found * x


def gradient(f, make, factor):
    x = torch.linspace(0.1, 1, 4, requires_grad=True)
    with make(factor):
        y = f(x)
    y.sum().backward()
    return y.detach(), x.grad


@pytest.mark.filterwarnings("ignore:fxstack. the saved-tensor hooks")
@pytest.mark.parametrize("f", [model, inner])
@pytest.mark.parametrize("name", MAKERS)
def test_compiled_once(name, f):
    compiled = fxstack.compile(f)
    counts = []
    for _ in range(10):
        torch.testing.assert_close(gradient(compiled, MAKERS[name], 2.0), gradient(f, MAKERS[name], 2.0))
        counts.append(fxstack.compile_log(compiled).graph_count)
    assert counts[0] == counts[-1]
