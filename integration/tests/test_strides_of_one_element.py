"""Dimensions of one element have eager's strides, in results and in gradients."""

import pytest
import torch

import fxstack

PROGRAMS = {
    "times": lambda x: x.t() * 1,
    "copied": lambda x: x.t().clone(),
    "converted": lambda x: x.t().double(),
    "compared": lambda x: torch.where(x.t() > 0, x.t(), 0.0),
    "flipped": lambda x: x.t().flip(0),
    "lower": lambda x: x.t().tril(),
    "narrowed": lambda x: x[:, :1] * 2,
}


@pytest.mark.parametrize("dynamic", [False, True])
@pytest.mark.parametrize("backend", ["aot_eager", "inductor"])
@pytest.mark.parametrize("name", PROGRAMS)
def test_strides_are_eagers(name, backend, dynamic):
    fn = PROGRAMS[name]
    compiled = fxstack.compile(fn, backend=backend, dynamic=dynamic)
    for shape in ((1, 4), (4, 1)):
        x = torch.randn(shape, requires_grad=True)
        y = x.detach().clone().requires_grad_()
        expected, got = fn(x), compiled(y)
        assert got.stride() == expected.stride()
        tangent = torch.ones_like(expected)
        expected.backward(tangent)
        got.backward(tangent)
        assert y.grad.stride() == x.grad.stride()
