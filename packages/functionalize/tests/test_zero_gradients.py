"""Gradients of zeros that depend on no result: there is one where eager has one."""

import pytest
import torch
from compare import compiled


def beside_a_sum(x, w):
    return torch.copysign(x, w).sum(), w + 1


def beside_a_product(x, w):
    return torch.copysign(x, w).sum(), (w * 2).sum(), w.sin()


@pytest.mark.parametrize("fn", [beside_a_sum, beside_a_product])
@pytest.mark.parametrize("used", [(0,), (1,), (0, 1)])
def test_equals_eager(fn, used):
    found = []
    for run in (fn, compiled(fn, [torch.ones(3), torch.ones(3, requires_grad=True)])):
        w = torch.ones(3, requires_grad=True)
        results = run(torch.arange(3.0), w)
        sum(results[place].sum() for place in used).backward()
        found.append(w.grad)
    assert torch.equal(*found)


def zeros_beside_others(x, w):
    return torch.copysign(x, w).sum(), w * 2, x.sin()


def largest_of_none(x, w):
    return x.cummax(0)[0], w[:0].cummax(0)[0], w * 2


@pytest.mark.parametrize("fn", [zeros_beside_others, largest_of_none])
@pytest.mark.parametrize("used", [(0,), (1,), (2,), (0, 1), (0, 2)])
@pytest.mark.parametrize("count", [0, 3])
def test_there_is_one_where_autograd_runs_what_leads_to_the_input(fn, used, count):
    x, w = (torch.ones(count, requires_grad=True) for _ in range(2))
    found = []
    for run in (fn, compiled(fn, [x, w])):
        x.grad = w.grad = None
        results = run(x, w)
        sum(results[place].sum() for place in used).backward()
        found.append([t.grad is None for t in (x, w)])
    assert found[0] == found[1]
