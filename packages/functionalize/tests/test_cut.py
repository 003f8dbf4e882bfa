"""Inputs that get no gradient: their history is not the outputs'."""

import random
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


READS = {  # uses of ``h`` that give it no gradient
    "detach": lambda h: h.detach(),
    "no_grad": lambda h: _without_grad(h * 2),
    "comparison": lambda h: (h > 0).double(),
    "integers": lambda h: h.long().double(),
    "shape": lambda h: torch.ones(h.shape[0], h.size(-1), dtype=torch.float64),
    "broadcast": lambda h: torch.broadcast_tensors(h * 2, torch.ones(3, 3).double())[1].detach(),
    "views": lambda h: h.view(9)[1:].view(2, 4).t()[:3, :1].detach(),
    "argmax": lambda h: h.argmax(1).double() * torch.ones_like(h),
}
RESULTS = {  # results of what was read, of the input ``w``, and of a history of its own
    "a new leaf": lambda read, w, other: (_leaf(read).exp(),),
    "linked": lambda read, w, other: (e := _leaf(read).exp(), e.softmax(0), e.sum() * 2),
    "an input": lambda read, w, other: (read * w,),
    "a leaf and an input": lambda read, w, other: (_leaf(read).exp(), w * 2),
    "a leaf and a freed history": lambda read, w, other: (other.sin(), _leaf(read).exp(), w * 2),
    "two leaves": lambda read, w, other: (_leaf(read) ** 2, other.sin(), _leaf(read + 1).exp()),
}


def _without_grad(t):
    with torch.no_grad():
        return t.clone()


def _leaf(t):
    return (t + 1).detach().requires_grad_()


def _freed():
    h = leaf(3, 3).sin().exp()
    h.sum().backward()
    return h


def _backwards(run, order, *, twice):
    """Differentiate results one after the other, by ``backward(create_graph=twice)``; return what happened."""
    torch.manual_seed(3)
    w = leaf(3, 3)
    results, seen = run(_freed(), w, _freed()), []
    for number in order:
        try:
            results[number % len(results)].sum().backward(retain_graph=True, create_graph=twice)
        except RuntimeError as error:
            seen.append(str(error))
    return [*seen, *((t.requires_grad, t.is_leaf) for t in results)], [w.grad, *(t.detach() for t in results)]


@pytest.mark.filterwarnings("ignore:Using backward.. with create_graph")
@pytest.mark.parametrize("read", random.Random(5).sample(sorted(READS), 5))
@pytest.mark.parametrize("result", RESULTS)
def test_a_freed_history_that_is_only_read(read, result):
    def fn(h, w, other):
        return RESULTS[result](READS[read](h), w, other)

    ours = compiled(fn, [_freed(), leaf(3, 3), _freed()])
    for order in ((0,), (1, 0), (2, 1)):
        for twice in (False, True):
            (facts, values), (expected_facts, eager) = (_backwards(f, order, twice=twice) for f in (ours, fn))
            assert facts == expected_facts
            torch.testing.assert_close(values, eager, rtol=0, atol=0)
