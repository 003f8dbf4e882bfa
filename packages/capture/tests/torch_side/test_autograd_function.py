"""Custom autograd functions end to end: one node, guarded Python, exact values and gradients."""

from __future__ import annotations

import pytest
import torch

import fxstack_capture

SCALE = 2.0
LOG = []


class Old(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x, n):
        ctx.save_for_backward(x)
        ctx.n = n
        return x * x * n * SCALE

    @staticmethod
    def backward(ctx, g):
        (x,) = ctx.saved_tensors
        return 2 * x * g * ctx.n * SCALE, None


class New(torch.autograd.Function):
    @staticmethod
    def forward(x, y):
        return x * y, x + 1

    @staticmethod
    def setup_context(ctx, inputs, output):
        ctx.save_for_backward(*inputs)
        ctx.mark_non_differentiable(output[1])

    @staticmethod
    def backward(ctx, g, _):
        x, y = ctx.saved_tensors
        return g * y, g * x


class Dirty(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x):
        x.add_(1)
        ctx.mark_dirty(x)
        return x

    @staticmethod
    def backward(ctx, g):
        return g * 3


class Logs(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x):
        LOG.append(1)
        return x * 2

    @staticmethod
    def backward(ctx, g):
        return g * 2


PROGRAMS = {
    "old": lambda x: Old.apply(x.sin(), 3) + 1,
    "new": lambda x: New.apply(x, x * 2)[0] * New.apply(x, x * 2)[1],
    "dirty": lambda x: Dirty.apply(x * 2) + x,
    "logs": lambda x: Logs.apply(x) + 1,
}


def check(compiled, fn):
    x = torch.randn(3, requires_grad=True)
    y = x.detach().clone().requires_grad_()
    a, b = fn(x), compiled(y)
    assert torch.equal(a, b)
    a.sum().backward()
    b.sum().backward()
    assert torch.equal(x.grad, y.grad)


@pytest.mark.parametrize("name", PROGRAMS)
def test_equals_eager(name):
    graphs = []
    compiled = fxstack_capture.optimize(lambda gm, _: (graphs.append(gm), gm)[1])(PROGRAMS[name])
    for _ in range(3):
        check(compiled, PROGRAMS[name])
    if name != "logs":
        assert len(graphs) == 1


def test_effects_happen_once_a_call():
    compiled = fxstack_capture.optimize()(PROGRAMS["logs"])
    LOG.clear()
    for _ in range(3):
        compiled(torch.ones(2))
    assert len(LOG) == 3


def test_what_the_methods_read_is_guarded(monkeypatch):
    compiled = fxstack_capture.optimize()(PROGRAMS["old"])
    check(compiled, PROGRAMS["old"])
    monkeypatch.setitem(globals(), "SCALE", 7.0)
    check(compiled, PROGRAMS["old"])


class CompiledBackward(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x):
        twice = x + x
        ctx.save_for_backward(twice, x)
        return twice.sin()

    @staticmethod
    @fxstack_capture.optimize(fullgraph=True)
    def backward(ctx, g):
        twice, x = ctx.saved_tensors
        return g * twice.cos() * 2 + x


def test_a_backward_that_is_compiled_itself_reads_what_was_saved():
    for _ in range(2):
        x = torch.randn(3, requires_grad=True)
        CompiledBackward.apply(x).sum().backward()
        assert torch.allclose(x.grad, 2 * torch.cos(2 * x) + x)
