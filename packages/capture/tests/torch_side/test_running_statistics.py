"""``BatchNorm`` that averages over all batches: its momentum is computed from a tensor."""

import copy

import pytest
import torch
from torch import nn

import fxstack_capture as fx

SHAPES = {
    nn.BatchNorm1d: [(5, 4), (3, 4, 6)],
    nn.BatchNorm2d: [(2, 4, 3, 3)],
    nn.BatchNorm3d: [(2, 4, 2, 3, 2)],
}


def step(module, call, x):
    leaf = x.clone().requires_grad_()
    out = call(leaf)
    out.square().sum().backward()
    return out, leaf.grad, *module.buffers(), *module.parameters()


@pytest.mark.parametrize("affine", [True, False])
@pytest.mark.parametrize("kind", SHAPES)
def test_momentum_of_none_is_one_graph(kind, affine):
    for shape in SHAPES[kind]:
        module = kind(4, momentum=None, affine=affine)
        alternate = copy.deepcopy(module)
        compiled = fx.optimize(fullgraph=True)(alternate)
        for mode in (True, True, False, True):
            module.train(mode)
            alternate.train(mode)
            x = torch.randn(shape) * 3 + 1
            torch.testing.assert_close(step(alternate, compiled, x), step(module, module, x))


def test_without_statistics():
    module = nn.BatchNorm1d(4, momentum=None, track_running_stats=False)
    x = torch.randn(5, 4)
    torch.testing.assert_close(fx.optimize(fullgraph=True)(module)(x), module(x))
