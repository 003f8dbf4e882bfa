"""Shared regions inside of other operators with functions, and other operators inside of shared regions."""

import pytest
import torch
from hop_programs import PLAIN, TORCHS

import fxstack

AROUND = {
    "cond": lambda ops, f, s: ops.cond(s.sum() > -100, f, lambda s: s * 2, (s,)),
    "while_loop": lambda ops, f, s: ops.while_loop(
        lambda i, _s: i < 2, lambda i, s: (i + 1, f(s)), (torch.tensor(0), s)
    )[1],
    "scan": lambda ops, f, s: ops.scan(lambda c, x: (f(c), f(x)), s, torch.stack([s, s + 1]))[1].sum(0),
    "map": lambda ops, f, s: ops.map(f, torch.stack([s, s + 1])).sum(0),
    "checkpoint": lambda ops, f, s: ops.checkpoint(f, s),
}


def twice(ops, f, s):
    return ops.region(f, ops.region(f, s))


def outcome(fn):
    """The result, the next random number, and the gradient."""
    torch.manual_seed(1)
    x = torch.randn(3, requires_grad=True)
    result = fn(x * 1)
    following = torch.rand(1)
    result.sum().backward()
    return result.detach(), following, x.grad


def compare(program):
    compiled = fxstack.compile(lambda s: program(TORCHS, s), backend="aot_eager", fullgraph=True)
    torch.testing.assert_close(outcome(compiled), outcome(lambda s: program(PLAIN, s)))


@pytest.mark.parametrize("name", AROUND)
def test_a_region_that_draws_random_numbers_inside_of_an_operator(name):
    def draw(s):
        return s * torch.rand_like(s)

    compare(lambda ops, s: AROUND[name](ops, lambda s: twice(ops, draw, s), s))


@pytest.mark.parametrize("name", ["cond", "map"])
def test_a_region_that_calls_an_operator(name):
    compare(lambda ops, s: twice(ops, lambda s: AROUND[name](ops, torch.sin, s), s))


def test_a_region_inside_of_a_scan():
    compare(lambda ops, s: AROUND["scan"](ops, lambda s: twice(ops, torch.sin, s), s))


def test_a_region_inside_of_a_region_and_beside_it():
    compare(lambda ops, s: twice(ops, lambda s: twice(ops, torch.tanh, s) + s, s) + ops.region(torch.tanh, s))


def test_the_gradient_of_a_scan_whose_last_carry_is_summed():
    def total(ops, w):
        steps = torch.ones(4, 3)
        return ops.scan(lambda c, x: ((c * w + x).tanh(), c.sum()), torch.zeros(3), steps)[0].sum()

    compare(lambda ops, s: torch.func.grad(lambda w: total(ops, w))(s.detach()) * s)
