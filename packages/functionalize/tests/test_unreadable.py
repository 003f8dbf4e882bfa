"""Saved tensors that are changed before the backward: an error where the backward needs them, and only there."""

import pytest
import torch
from compare import compiled

SCALE = torch.arange(1.0, 4.0)


def product_beside(x, scale):
    return x * scale, x.sin()


def product_of_views(x, scale):
    return x * scale.view(3, 1)[:, 0], x.sin(), x + 1


def both_need_it(x, scale):
    return x * scale, x.sin() * scale


def outcome(fn, used, *, twice=False, batched=False):
    x, scale = torch.ones(3, requires_grad=True), SCALE.clone()
    results = fn(x, scale)
    scale.add_(1)
    chosen = sum(results[place].sum() for place in used)
    try:
        if batched:
            grads = torch.eye(3)
            (found,) = torch.autograd.grad(results[used[0]], x, grads, is_grads_batched=True)
        else:
            (found,) = torch.autograd.grad(chosen, x, create_graph=twice)
    except RuntimeError as error:
        return str(error).partition(":")[0]
    return found.tolist()


@pytest.mark.parametrize("fn", [product_beside, product_of_views, both_need_it])
@pytest.mark.parametrize("used", [(1,), (0,), (0, 1)])
def test_equals_eager(fn, used):
    made = compiled(fn, [torch.ones(3, requires_grad=True), SCALE])
    ours, eager = outcome(made, used), outcome(fn, used)
    assert type(ours) is type(eager) is (list if used == (1,) and fn is not both_need_it else str)
    assert ours == eager or isinstance(ours, str)


@pytest.mark.parametrize("how", [{"twice": True}, {"batched": True}])
def test_a_backward_that_needs_all_of_them_raises(how):
    made = compiled(product_beside, [torch.ones(3, requires_grad=True), SCALE])
    assert "modified by an inplace operation" in outcome(made, (1,), **how)


def test_a_second_backward_says_that_they_are_freed():
    made = compiled(product_beside, [torch.ones(3, requires_grad=True), SCALE])
    _, sine = made(torch.ones(3, requires_grad=True), SCALE)
    sine.sum().backward()
    with pytest.raises(RuntimeError, match="second time"):
        sine.sum().backward()
