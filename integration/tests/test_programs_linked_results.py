"""Results of one graph of which one is computed from the other: who looks at the gradient of the first sees all of it."""

import gc
import weakref

import pytest
import torch
from beside_eager import Programs, attempt
from torch import nn
from torch.nn import functional as F

import fxstack

program = Programs()
AOT = {"backend": "aot_eager", "graphs": 1, "breaks": 0}


def leaf():
    return torch.arange(1.0, 4.0, requires_grad=True)


def squares(x):
    y = x * x
    return y, (y**3).sum()


@program(graphs=1, breaks=0)
def hook_that_changes_the_gradient(c):
    x = leaf()
    y, z = c(squares)(x)
    y.register_hook(lambda gradient: gradient * 10)
    (z + y.sum()).backward()
    return x


@program(graphs=1, breaks=0)
def losses_that_share_weights_in_turn(c):
    judge = nn.Sequential(nn.Linear(4, 8), nn.LeakyReLU(), nn.Linear(8, 1))
    maker = nn.Linear(3, 4)

    @c
    def losses(real, noise):
        made = maker(noise)
        return [F.softplus(-judge(x)).mean() for x in (real, -made.detach(), made)]

    for order in ((0, 1, 2), (2, 0), (1,)):
        found = losses(torch.randn(5, 4), torch.randn(5, 3))
        for number in order:
            found[number].backward()
    return judge, maker


@program(graphs=2, breaks=0)
def what_a_backward_computes_again_and_another_does_not_need(c):
    """``remainder`` may raise, for which the graph keeps it where nobody uses its result."""
    table, x, y = torch.randn(4, 3, requires_grad=True), leaf(), leaf()

    @c
    def f(given, divisor):
        return given * 2, F.embedding(torch.tensor([1, 2, 3]) % divisor, table).sum(0)

    for left in (x, y.exp()):
        results = f(left, torch.tensor([3, 2, 1]))
        sum(result.sum() for result in results).backward()
    return x, y, table


@program(graphs=1, breaks=0)
def logits_and_loss_of_a_model_that_drops_out(c):
    model = nn.Sequential(nn.Linear(4, 8), nn.Dropout(0.5), nn.Linear(8, 3))

    @c
    def f(x, target):
        logits = model(x)
        return logits, F.cross_entropy(logits, target)

    logits, loss = f(torch.randn(5, 4), torch.tensor([0, 1, 2, 0, 1]))
    logits.retain_grad()
    between = torch.rand(2)
    loss.backward()
    return logits.grad, model, between


@program(**AOT)
def gradients_asked_for(c):
    x = leaf()
    y, z = c(squares)(x)
    found = [torch.autograd.grad(z, wanted, retain_graph=True) for wanted in (y, x, [y, x])]
    edge = torch.autograd.graph.get_gradient_edge(y)
    return (found, torch.autograd.grad(z, edge, retain_graph=True), z.backward(inputs=[x, y]), y.grad, x)


@program(**AOT)
def gradients_that_are_differentiated(c):
    x, w = leaf(), torch.ones(3, requires_grad=True)
    y, z = c(lambda x, w: (lambda y: (y, (y**3 * w).sum()))(x * w))(x, w)
    gradients = torch.autograd.grad(z, [y, x, w], create_graph=True)
    sum((g * g).sum() for g in gradients).backward()
    return gradients, x, w


@program(**AOT)
def a_chain_with_hooks(c):
    @c
    def f(x):
        out = []
        for _ in range(5):
            x = torch.tanh(x * 1.1 + 0.1 * sum(out))
            out.append(x)
        return out

    x = leaf()
    results = f(x)
    for result in results:
        result.retain_grad()
    results[1].register_hook(lambda gradient: gradient * 2)
    results[2].register_hook(lambda gradient: gradient + 1)
    (results[-1].sum() + results[1].sum()).backward()
    return x, [result.grad for result in results]


@program(**AOT)
def a_hook_on_a_result_that_is_dropped(c):
    seen = []
    x = leaf()
    y, z = c(squares)(x)
    y.register_hook(seen.append)
    del y
    z.backward()
    return seen, x


@program(**AOT)
def again_and_again(c):
    @c
    def f(x):
        y = x * x
        return y, (y**3).sum(), y.sin()

    x = leaf()
    y, z, s = f(x)
    y.retain_grad()
    z.backward(retain_graph=True)
    s.sum().backward(retain_graph=True)
    (z + s.sum()).backward()
    return y.grad, x, attempt(z.backward)


@program(**AOT)
def results_that_are_views(c):
    @c
    def f(x):
        y = (x * x).view(3, 1)
        z = (y**3).view(1, 3)
        return y, z, z.t(), z.exp().sum()

    x = leaf()
    y, z, t, total = f(x)
    y.retain_grad()
    z.retain_grad()
    (total + t[1, 0]).backward()
    return x, y.grad, z.grad, t._base is z._base


@program(**AOT)
def results_that_are_changed_in_place(c):
    @c
    def f(x):
        y = x * x
        before = y.exp()
        y.add_(1)
        held = torch.zeros(4)
        held[:3] = y
        return y, held, (y.sin() + before).sum() + held.pow(2).sum()

    x = leaf()
    y, held, z = f(x)
    y.retain_grad()
    held.retain_grad()
    z.backward()
    return x, y.grad, held.grad


@program(**AOT)
def results_that_are_no_part_of_each_other(c):
    @c
    def f(x):
        y = x * x
        return y, (y.detach() * x).sum(), y.argmax(), (y > 1).float()

    y, z, *_others = f(leaf())
    return attempt(torch.autograd.grad, z, y)


@program(backend="aot_eager", breaks=0)
def a_layer_on_one_row(c):
    model = nn.Linear(3, 3)

    @c
    def f(x):
        y = model(x)
        return y, (y**3).sum() / x.shape[0]

    found = []
    for rows in (None, 2, 3, 4):
        y, z = f(torch.ones(3) if rows is None else torch.ones(rows, 3))
        y.retain_grad()
        z.backward()
        found.append(y.grad)
    return found, model


@program(**AOT)
def under_autocast(c):
    model = nn.Sequential(nn.Linear(4, 8), nn.Linear(8, 3))

    @c
    def f(x):
        y = model(x)
        return y, y.float().pow(2).sum()

    with torch.autocast("cpu", torch.bfloat16):
        y, z = f(torch.ones(2, 4))
    y.retain_grad()
    z.backward()
    return y.grad, model


@program(**AOT)
def nothing_is_kept_alive(c):
    w = leaf()
    x = w * 1
    alive = weakref.ref(x)
    y, z = c(squares)(x)
    y.retain_grad()
    del x
    z.backward()
    gc.collect()
    return alive() is None


test_equals_eager = program.tests()


def test_what_cannot_run_again_is_an_error():
    model = nn.Sequential(nn.Linear(4, 8), nn.BatchNorm1d(8))

    @fxstack.compile(backend="aot_eager")
    def f(x):
        y = model(x)
        return y, y.pow(2).sum()

    y, z = f(torch.randn(5, 4))
    y.retain_grad()
    with pytest.raises(RuntimeError, match=r"(?s)changes its inputs in place.*graph_break"):
        z.backward()


def test_inputs_that_were_changed_are_an_error():
    w = leaf()
    y, z = fxstack.compile(squares, backend="aot_eager")(w)
    y.retain_grad()
    with torch.no_grad():
        w.add_(1)
    with pytest.raises(RuntimeError, match="modified by an inplace operation"):
        z.backward()


def test_what_lies_behind_a_sum_over_calls_is_not_asked_again():
    """The sum is an input with the history of the call before, which the backward of this call runs without gradients."""
    kept = [torch.zeros(())]

    def step(w):
        y = F.prelu(w, torch.tensor([0.25]))
        total = y.nansum(0)
        kept[0] = kept[0] + total
        rest = total % 3
        changed = y.put(torch.tensor([0]), y.reshape(-1)[:1] * 2)
        last = rest.grad if rest.grad is not None else rest
        copy = changed.clone()
        return copy, torch.dot(copy, copy), last

    found = []
    for run in (step, fxstack.compile(step, backend="aot_eager")):
        kept[0], w = torch.zeros(()), leaf()
        for _ in range(3):
            sum(t.sum() for t in run(w)).backward()
        found.append(w.grad)
    assert torch.equal(*found)
