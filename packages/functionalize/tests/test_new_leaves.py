"""Leaves that a graph makes and returns, beside eager."""

import pytest
import torch
from compare import check, refuses
from test_semantics import leaf

plain = lambda: (leaf(3, 4, grad=False), leaf(3, 4))  # noqa: E731 - one line


def beside_its_source(x, w):
    y = x * w
    return y.detach().requires_grad_(), y, (y * y).sum()


def after_a_gradient(x, w):
    start = torch.zeros_like(x, requires_grad=True)
    (slope,) = torch.autograd.grad(((x + start) * w).square().sum(), start)
    made = (start + slope.sign()).detach().requires_grad_()
    return made, made


ALONE = {
    "result": lambda x, w: (x * 2).requires_grad_(),
    "fresh": lambda x, w: (torch.zeros_like(x, requires_grad=True), x * w),
    "the input's memory": lambda x, w: x.detach().requires_grad_(),
    "beside its source": beside_its_source,
    "after a gradient": after_a_gradient,
    "of an input that is changed": lambda x, w: (x.add_(1).detach().requires_grad_(), w * 2),
}
NEEDED = {
    "a loss": lambda x, w: (lambda d: (d, ((x + d) * w).sum()))(torch.zeros_like(x).requires_grad_()),
    "a view": lambda x, w: (lambda d: (d, d[0]))((x * 2).requires_grad_()),
    "only a view": lambda x, w: (x * 2).requires_grad_()[0],
    "an input": lambda x, w: (lambda d: (d, x.mul_(d)))((x * 2).requires_grad_()),
}
HIDDEN = {
    "computed": lambda x, y: (x * 2).requires_grad_().sum(),
    "a view": lambda x, y: (lambda v: (v.requires_grad_(), v.sum())[1])(x.mT),
    "beside data": lambda x, y: (x.detach().requires_grad_() * y, y + 1),
}


@pytest.mark.parametrize("name", HIDDEN)
def test_without_an_input_that_requires_a_gradient(name):
    refuses(HIDDEN[name], lambda: (torch.randn(3, 4), torch.randn(3, 4)), "no input of the graph")


@pytest.mark.parametrize("name", ALONE)
def test_compiled(name):
    check(ALONE[name], plain)


@pytest.mark.parametrize("name", NEEDED)
def test_left_to_eager(name):
    refuses(NEEDED[name], plain, "is a new leaf")


def test_that_an_operator_cannot_be_differentiated_for():
    def fn(x, w):
        made = x.detach().requires_grad_().sin()
        return torch.heaviside(made, made), x * w

    refuses(fn, plain, "derivative for aten::heaviside is not implemented")
