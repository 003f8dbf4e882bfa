"""Inputs that get no gradient: their history is not the outputs'."""

import weakref

import pytest
import torch
from compare import check, compiled
from test_semantics import leaf


def step(h, w):
    h = torch.tanh(h.detach() @ w)
    return h.sum(), h


def in_place(h, w):
    h.detach_()
    h = torch.tanh(h @ w)
    return h.sum(), h


def one_of_two(h, w):
    return (h.detach() * w).sum(), h * 2


def changed_unseen(h, w):
    with torch.no_grad():
        h.mul_(2)
    return (h.detach() * w).sum(), h


def inputs():
    root = leaf(3, 3)
    h = root * 0.5
    h.root = root
    return h, leaf(3, 3)


def train(run, steps=4):
    """Truncated backpropagation through time: each backward frees what it went through."""
    h, w = inputs()
    for _ in range(steps):
        loss, h = run(h, w)
        loss.backward()
    return h, w.grad


@pytest.mark.parametrize("fn", [step, in_place])
def test_steps_through_time(fn):
    ours, eager = train(compiled(fn, inputs())), train(fn)
    torch.testing.assert_close(ours, eager, rtol=0, atol=0)


@pytest.mark.parametrize("fn", [step, one_of_two, changed_unseen])
def test_as_eager(fn):
    check(fn, inputs)


def test_history_is_freed():
    run = compiled(step, inputs())
    h, w = inputs()
    first = run(h, w)[1]
    history = weakref.ref(first.grad_fn)
    second = run(first, w)[1]
    del first
    assert second.requires_grad
    assert history() is None


def test_a_change_that_autograd_does_not_see_has_no_history():
    run, (h, w) = compiled(changed_unseen, inputs()), inputs()
    loss, _ = run(h, w)
    loss.backward()
    h.sum().backward()
    assert torch.equal(h.root.grad, torch.full((3, 3), 0.5))


def test_a_hook_on_such_an_input_is_not_called():
    seen = []
    h, w = inputs()
    h.register_hook(seen.append)
    run = compiled(step, inputs())
    run(h, w)[0].backward()
    assert seen == []


def test_a_freed_graph_behind_an_output_without_gradient():
    run = compiled(one_of_two, inputs())
    _, h = compiled(one_of_two, (leaf(3, 3), leaf(3, 3)))(leaf(3, 3), w := leaf(3, 3))
    h.sum().backward()
    loss, _ = run(h, w)
    loss.backward()
    assert w.grad is not None


def test_second_derivatives():
    run, (h, w) = compiled(step, inputs()), inputs()
    for function in (run, step):
        (grad,) = torch.autograd.grad(function(h, w)[0], w, create_graph=True)
        torch.testing.assert_close(*torch.autograd.grad(grad.sum(), w), expected(h, w))


def expected(h, w):
    (grad,) = torch.autograd.grad(step(h, w)[0], w, create_graph=True)
    return torch.autograd.grad(grad.sum(), w)[0]


def test_an_input_changed_before_the_backward_is_an_error():
    run, (h, w) = compiled(step, inputs()), inputs()
    loss = run(h, w)[0]
    with torch.no_grad():
        h.add_(1)
    with pytest.raises(RuntimeError, match="modified by an inplace operation"):
        loss.backward()
