"""Loops of models compiled by all stages, against the same loop in plain Python: values and gradients."""

import threading

import pytest
import torch
from hop_programs import PLAIN, TORCHS
from torch import nn

import fxstack


class RungeKutta(nn.Module):
    """A differential equation, solved in four steps."""

    def __init__(self):
        super().__init__()
        self.matrix = nn.Parameter(torch.randn(3, 3) * 0.3)

    def slope(self, time, y):
        return torch.tanh(y @ self.matrix) * torch.cos(time)

    def forward(self, ops, y):
        def step(y, time):
            first = self.slope(time, y)
            second = self.slope(time + 0.1, y + 0.1 * first)
            third = self.slope(time + 0.1, y + 0.1 * second)
            y = y + 0.2 / 6 * (first + 2 * second + 2 * third + self.slope(time + 0.2, y + 0.2 * third))
            return y, y.clone()

        return ops.scan(step, y, torch.arange(4) * 0.2)


class SelectiveScan(nn.Module):
    """The recurrence of a selective state space model: ``h = exp(dt * a) * h + dt * b * x``."""

    def __init__(self):
        super().__init__()
        self.decay, self.project = nn.Parameter(torch.randn(3, 2)), nn.Linear(3, 7)

    def forward(self, ops, x):
        b, c, dt = self.project(x).split([2, 2, 3], -1)
        dt = nn.functional.softplus(dt)
        decay = torch.exp(-dt[..., None] * self.decay.exp())
        inputs = dt[..., None] * b[:, None] * x[..., None]
        # In the mode "pointwise", torch's own gradient of two scanned tensors differs from that of the loop.
        _, state = ops.associative_scan(
            lambda left, right: (left[0] * right[0], right[0] * left[1] + right[1]),
            (decay, inputs),
            0,
            combine_mode="generic",
        )
        return torch.einsum("ldn,ln->ld", state, c)


def observed(call, module, ops, x):
    """The results of a module, and the gradients of the input and the parameters."""
    module.zero_grad()
    x = x.clone().requires_grad_()
    results = torch.utils._pytree.tree_leaves(call(ops, x))
    sum((result**2).sum() for result in results).backward()
    return [*results, x.grad, *(p.grad for p in module.parameters())]


@pytest.mark.parametrize("options", [{"fullgraph": True}, {"dynamic": True}], ids=["fullgraph", "dynamic"])
@pytest.mark.parametrize("model", [RungeKutta, SelectiveScan])
def test_values_and_gradients_are_those_of_a_plain_loop(model, options):
    module, x = model(), torch.randn(5, 3)
    found = observed(fxstack.compile(module, **options), module, TORCHS, x)
    torch.testing.assert_close(found, observed(module, module, PLAIN, x))


def test_three_threads_compile_functions_with_branches_and_loops_at_once():
    def program(ops, x, factor):
        y = ops.cond(x.sum() > 0, lambda a: a * factor, lambda a: a - factor, (x,))
        return ops.while_loop(
            lambda n, a: n < factor, lambda n, a: (n + 1, a * 0.5 + n), (torch.tensor(0), y)
        )

    found = {}

    def work(factor):
        x = torch.full((factor,), (-1.0) ** factor)
        found[factor] = fxstack.compile(program)(TORCHS, x, factor), program(PLAIN, x, factor)

    threads = [threading.Thread(target=work, args=(factor,)) for factor in (2, 3, 4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert sorted(found) == [2, 3, 4]
    for compiled, plain in found.values():
        torch.testing.assert_close(compiled, plain)
