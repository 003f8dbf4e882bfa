"""Inputs that only some results reach: hooks, accumulation and gradients are eager's, whichever results run.

The family: programs, a kind of observer for each leaf, and a sequence of autograd runs.
"""

import random
from itertools import product

import pytest
import torch

import fxstack


def apart(x, p, q, t):
    return (x @ p).sin(), (x @ q).exp() + t[0] * 0


def common_trunk(x, p, q, t):
    h = (x @ t).tanh()
    return (h @ p).sin(), (h @ q).exp()


def common_parameter(x, p, q, t):
    return (x @ t @ p).sin(), (x @ q).exp() * t.sum()


def no_saved_tensor(x, p, q, t):
    return x + p[0] + t[0], q - t


def one_inside_the_other(x, p, q, t):
    h = (x @ t).sin()
    return h @ t, (h @ t) * 2 + (h @ q).exp() @ p


def three(x, p, q, t):
    h = (x @ t).tanh()
    return (h @ p).sin(), (h @ q).exp() @ p, (h + q[0]).cos()


def chained(x, p, q, t):
    h = x @ t
    return h, ((h.sin() @ q).exp() @ p)


def chain_of_three(x, p, q, t):
    h = (x @ t).sin()
    k = (h @ q).exp()
    return h, k, (k @ p).sin() + h.cos()


def intermediates(x, p, q, t):
    return common_trunk(x, *(leaf * 2 for leaf in (p, q, t)))


PROGRAMS = [
    apart,
    common_trunk,
    common_parameter,
    no_saved_tensor,
    one_inside_the_other,
    three,
    chained,
    chain_of_three,
]


def no_observer(name, leaf, seen): ...


def hook(name, leaf, seen):
    leaf.register_hook(lambda grad: seen.append((name, grad.clone())) or grad.clamp(-1, 1))


def after_accumulation(name, leaf, seen):
    leaf.register_post_accumulate_grad_hook(lambda leaf: seen.append((name, leaf.grad.clone())))


def of_the_results(name, leaf, seen):
    """Hooks on the results (``play``), besides those on leaves."""
    hook(name, leaf, seen)


OBSERVERS = [no_observer, hook, after_accumulation, of_the_results]


def first(results, leaves):
    results[0].sum().backward(retain_graph=True)


def second(results, leaves):
    results[1].sum().backward(retain_graph=True)


def last(results, leaves):
    results[-1].sum().backward()


def both(results, leaves):
    torch.autograd.backward([results[0].sum(), results[1].sum()], retain_graph=True)


def added(results, leaves):
    (results[0].sum() * 2 + results[1].exp().sum()).backward()


def asked(pick, *wanted):
    def run(results, leaves):
        chosen = [results[place].sum() for place in pick]
        found = torch.autograd.grad(chosen, [leaves[i] for i in wanted], allow_unused=True, retain_graph=True)
        for leaf, grad in zip(leaves, found, strict=False):
            leaf.grad = None if grad is None else grad.clone()

    return run


def second_derivative(results, leaves):
    found = torch.autograd.grad(results[1].sum(), leaves[1:], create_graph=True, allow_unused=True)
    total = sum(grad.square().sum() for grad in found if grad is not None)
    if total.requires_grad:
        total.backward()


RUNS = {
    "first": [first],
    "second": [second],
    "in order": [first, last],
    "in reverse order": [second, first, last],
    "freed": [last, last],
    "both": [both],
    "added": [added, first],
    "the first's leaf": [asked((0,), 0)],
    "the second's leaf": [asked((1,), 1), second],
    "leaves of both": [asked((0, 1), 0, 1), asked((0, 1), 1)],
    "all": [asked((1,), 0, 1, 2), last],
    "second derivative": [second_derivative],
}


def leaves_of():
    torch.manual_seed(0)
    return [torch.randn(3, 3, requires_grad=True) for _ in range(3)]


def play(fn, steps, observe, rows):
    """Return after each run the calls of the observers by leaf, and the gradients."""
    seen, states = [], []
    leaves = leaves_of()
    for name, leaf in enumerate(leaves):
        observe(name, leaf, seen)
    results = fn(torch.linspace(0, 1, 3 * rows).reshape(rows, 3), *leaves)
    if observe is of_the_results:
        for name, result in enumerate(results):
            result.register_hook(lambda grad, name=name: seen.append((-name - 1, grad.clone())) or grad * 2)
    for step in steps:
        try:
            step(results, leaves)
        except RuntimeError as error:
            states.append([[], str(error)])
            break
        calls = [entry for entry in seen if isinstance(entry, tuple)]
        states.append([sorted(calls, key=lambda entry: entry[0]), [leaf.grad for leaf in leaves]])
        states[-1] = torch.utils._pytree.tree_map(
            lambda value: value.detach().clone() if isinstance(value, torch.Tensor) else value, states[-1]
        )
    return [state for state in states if not isinstance(state[1], str)], [
        state[1] for state in states if isinstance(state[1], str)
    ]


def has_equal_hooks(fn, run, observe):
    """Whether eager calls hooks in the same runs: its second derivatives go through saved results."""
    return observe is not of_the_results or run != "second derivative"


CASES = [case for case in product([*PROGRAMS, intermediates], RUNS, OBSERVERS) if has_equal_hooks(*case)]
OURS = {}


def check(case, rows):
    fn, run, observe = case
    if fn not in OURS:
        OURS[fn] = fxstack.compile(fn, backend="aot_eager", fullgraph=True)
    ours, eager = (play(each, RUNS[run], observe, rows) for each in (OURS[fn], fn))
    assert ours[1] == eager[1]
    torch.testing.assert_close(ours[0], eager[0], rtol=1e-5, atol=1e-4, msg=lambda text: f"{case}: {text}")


@pytest.mark.parametrize("rows", [3, 5])
def test_a_sample_of_the_family(rows):
    for case in random.Random(rows).sample(CASES, 20):
        check(case, rows)
