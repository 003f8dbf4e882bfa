"""``fill_diagonal_`` with symbolic sizes: one graph for all sizes, equal to eager."""

import pytest
import torch

import fxstack_capture as fx


def views(x):
    y = x.repeat(3, 1)
    y.t().fill_diagonal_(2, wrap=False)
    return y, y[1:].fill_diagonal_(5.5), y[:, 1:].fill_diagonal_(fill_value=x.shape[0])


def cubes(x):
    n = x.shape[0]
    return torch.zeros(n, n, n).fill_diagonal_(1), torch.ones(n, n).bool().fill_diagonal_(False)


def causal(x):
    mask = torch.full((x.shape[0], x.shape[0]), float("-inf"))
    return (x.outer(x) + mask.fill_diagonal_(0)).softmax(-1)


def of_the_argument(x):
    return torch.diag(x).fill_diagonal_(7), x.view(-1, 1).fill_diagonal_(3)


def refused(x):
    try:
        x.fill_diagonal_(1)
    except RuntimeError as error:
        return x + len(str(error))


@pytest.mark.parametrize("fn", [views, cubes, causal, of_the_argument])
def test_equals_eager(fn):
    compiled = fx.optimize(dynamic=True, fullgraph=True)(fn)
    for size in (4, 5, 9):
        x, like = torch.arange(1.0, size + 1), torch.arange(1.0, size + 1)
        torch.testing.assert_close(compiled(x), fn(like), rtol=0, atol=0)
        assert torch.equal(x, like)


@pytest.mark.parametrize("fn", [refused, lambda x: x.repeat(9, 1).fill_diagonal_(3, wrap=True)])
def test_what_is_left_to_torch(fn):
    compiled = fx.optimize(dynamic=True)(fn)
    for size in (4, 5):
        x = torch.arange(float(size))
        torch.testing.assert_close(compiled(x), fn(x.clone()), rtol=0, atol=0)


def test_gradients():
    def fn(x):
        y = x * 2
        return y.fill_diagonal_(3).sum() + (y * y).sum()

    compiled = fx.optimize(dynamic=True, fullgraph=True)(fn)
    for size in (3, 4):
        x, like = (torch.arange(float(size * size)).reshape(size, size).requires_grad_() for _ in "xy")
        compiled(x).backward()
        fn(like).backward()
        assert torch.equal(x.grad, like.grad)
