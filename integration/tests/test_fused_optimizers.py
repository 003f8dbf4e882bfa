"""Optimizers with ``fused=True`` are compiled, and step as their kernels do."""

import warnings

import pytest
import torch
from torch import optim

import fxstack

STEPS = {
    "adam": (optim.Adam, {}),
    "amsgrad": (optim.Adam, {"amsgrad": True, "weight_decay": 0.1, "maximize": True}),
    "adamw": (optim.AdamW, {"lr": torch.tensor(0.01)}),
    "sgd": (optim.SGD, {"lr": 0.1, "momentum": 0.9, "nesterov": True, "weight_decay": 0.1}),
    "adagrad": (optim.Adagrad, {"lr_decay": 0.1, "weight_decay": 0.1}),
}


def stepped(cls, options, dtype, wrap):
    """Parameters, gradients and state after steps of which one is skipped for infinite gradients."""
    torch.manual_seed(0)
    params = [torch.nn.Parameter(torch.randn(5, 7).to(dtype)) for _ in range(2)]
    optimizer = cls(params, fused=True, **options)
    step = wrap(optimizer.step)
    if dtype is torch.float32:
        optimizer.grad_scale = torch.tensor(2.0)
    for turn in range(3):
        if dtype is torch.float32:
            optimizer.found_inf = torch.tensor(float(turn == 1))
        for param in params:
            param.grad = torch.randn(5, 7).to(dtype)
        step()
    states = [value for param in params for value in optimizer.state[param].values()]
    return [*params, *(param.grad for param in params), *states]


@pytest.mark.parametrize(
    ("name", "dtype"), [*((name, torch.float32) for name in STEPS), ("adamw", torch.bfloat16)]
)
def test_a_fused_step(name, dtype):
    wanted = stepped(*STEPS[name], dtype, lambda step: step)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        got = stepped(*STEPS[name], dtype, fxstack.compile)
    torch.testing.assert_close(got, wanted)
