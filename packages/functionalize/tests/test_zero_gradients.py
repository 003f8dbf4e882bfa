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
