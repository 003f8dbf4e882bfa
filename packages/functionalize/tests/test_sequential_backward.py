"""Results of one graph that are differentiated one after the other, alone and together, in every order."""

from itertools import permutations

import pytest
import torch
from compare import compiled
from torch.nn import functional as F

PROGRAMS = {}


def program(*shapes):
    def register(fn):
        PROGRAMS[fn.__name__] = fn, shapes
        return fn

    return register


class Double(torch.autograd.Function):
    """Two results of one node that saved a tensor."""

    @staticmethod
    def forward(ctx, x):
        ctx.save_for_backward(x)
        return x * x, x * 3

    @staticmethod
    def backward(ctx, first, second):
        (x,) = ctx.saved_tensors
        return 2 * x * first + 3 * second


class Unsaved(torch.autograd.Function):
    """What is kept on ``ctx`` autograd does not free."""

    @staticmethod
    def forward(ctx, x):
        ctx.x = x.detach()
        return x * x

    @staticmethod
    def backward(ctx, grad):
        return 2 * ctx.x * grad


@program((3,), (3,))
def nothing_in_common(x, y):
    return x.sin(), y.cos()


@program((3,))
def one_input(x):
    return x.exp(), x.tanh(), x * 2


@program((3,))
def a_chain(x):
    p, q = x.exp(), x.tanh()
    return p.sum(), (p * q).sum(), q.sum()


@program((4, 3), (3, 6))
def parts(x, w):
    q, k, v = (x @ w).chunk(3, 1)
    return q, k.softmax(-1), v.sum()


@program((3, 3), (3, 3))
def logits_loss_penalty(x, w):
    logits = x @ w
    return logits, F.cross_entropy(logits, torch.tensor([0, 1, 2])), (w**2).sum()


@program((3,))
def custom_functions(x):
    return (*Double.apply(x), Unsaved.apply(x))


@program((4,))
def infinite_derivatives(x):
    y = x - x.detach()
    p, q = y.chunk(2)
    return p.sqrt(), (q * 2).sum(), y.view(2, 2).t().norm(dim=0), y.expand(3, 4).mean()


@program((3,))
def gradients_added_to_themselves(x):
    y = x.clone()
    return (y + y).sin(), y.exp()


@program((3,))
def a_gradient_that_is_not_used(x):
    return x.sin(), x.expand(2, 3).sign()


def leaves_of(shapes):
    return [torch.linspace(0.1, 0.9, torch.Size(s).numel()).reshape(s).requires_grad_() for s in shapes]


def differentiate(fn, shapes, order, *, retain):
    """Return the gradients after each backward, or how it failed."""
    leaves, seen = leaves_of(shapes), []
    results = fn(*leaves)
    for number in order:
        try:
            results[number].sum().backward(retain_graph=retain)
        except RuntimeError as error:
            return [*seen, str(error)]
        seen.append([None if x.grad is None else x.grad.clone() for x in leaves])
    return seen


def same(ours, eager):
    assert len(ours) == len(eager)
    for mine, theirs in zip(ours, eager, strict=True):
        if isinstance(theirs, str):
            assert mine == theirs
        else:
            torch.testing.assert_close(mine, theirs, equal_nan=True)


@pytest.mark.parametrize("name", PROGRAMS)
@pytest.mark.parametrize("retain", [False, True])
def test_every_order(name, retain):
    fn, shapes = PROGRAMS[name]
    ours = compiled(fn, leaves_of(shapes))
    for order in permutations(range(len(fn(*leaves_of(shapes))))):
        rounds = (*order, order[0])
        same(
            differentiate(ours, shapes, rounds, retain=retain),
            differentiate(fn, shapes, rounds, retain=retain),
        )


def beside(left, right):
    return left.sin(), right.cos() * right, left.exp() @ left, (left + 1).detach()


def bound_together(left, right):
    return left.sin(), right.cos() * left, right.sum()


@pytest.mark.parametrize("fn", [beside, bound_together])
@pytest.mark.parametrize("order", [(1, 0, 2), (1, 2, 0), (0, 0), (1, 1)])
def test_histories_of_their_own(fn, order):
    def step(run):
        leaves = leaves_of([(3,), (3,)])
        seen = []
        results = run(*(leaf.exp() for leaf in leaves))
        for number in order:
            try:
                results[number].sum().backward()
            except RuntimeError as error:
                return [*seen, str(error)]
            seen.append([None if x.grad is None else x.grad.clone() for x in leaves])
        return seen

    ours = compiled(fn, [leaf.exp() for leaf in leaves_of([(3,), (3,)])])
    same(step(ours), step(fn))
    leaves, others = leaves_of([(3,), (3,)]), leaves_of([(3,), (3,)])
    for run, given in ((ours, leaves), (fn, others)):
        sum(y.sum() for y in run(*(x.exp() for x in given))[:3]).backward()
    same([[x.grad for x in leaves]], [[x.grad for x in others]])


def test_second_derivatives_of_results_with_histories_of_their_own():
    def step(run):
        x, y = leaves_of([(3,), (3,)])
        given = x.exp(), y.exp()
        a, b = run(*given)
        (first,) = torch.autograd.grad(b.sum(), y, create_graph=True)
        first.sum().backward()
        return [[x.grad, y.grad, a.detach(), first.detach()]]

    def fn(left, right):
        return left.sin(), right.cos() * right

    kept = leaves_of([(3,), (3,)])
    same(step(compiled(fn, [leaf.exp() for leaf in kept])), step(fn))


def _changed_between(pick):
    """A second result and its argument, after the first was differentiated and what ``pick`` gives was changed."""
    y = torch.ones(3, requires_grad=True)
    given = y.detach().clone().requires_grad_()
    a, b = compiled(lambda x, y: (x.exp(), y.tanh() * y), [y, given])(y, given)
    a.sum().backward()
    with torch.no_grad():
        pick(given, b).add_(1)
    return given, b


def test_what_was_changed_between_two_backwards_is_an_error():
    _, b = _changed_between(lambda given, _: given)
    with pytest.raises(RuntimeError, match=r"\[3\]\] is at version 1; expected version 0"):
        b.sum().backward()


def test_a_result_that_no_backward_needs_may_change_between_two():
    given, b = _changed_between(lambda _, result: result)
    b.sum().backward()
    eager = given.detach().clone().requires_grad_()
    (eager.tanh() * eager).sum().backward()
    torch.testing.assert_close(given.grad, eager.grad)


@pytest.mark.parametrize("hooked", [False, True])  # with hooks, inputs have nodes of their own
def test_each_backward_frees_its_own_part(hooked):
    x, y = (torch.randn(3, requires_grad=True) for _ in range(2))
    for value in (x, y) if hooked else ():
        value.register_hook(lambda grad: None)
    a, b = compiled(lambda x, y: (x.exp().sin(), y.exp().sin()), [x, y])(x, y)
    held = (a.grad_fn.call.state if hooked else a.grad_fn).held
    before = [tensor is None for tensor in held.tensors]
    a.sum().backward()
    between = [tensor is None for tensor in held.tensors]
    b.sum().backward()
    assert not any(before)
    assert any(between)
    assert not all(between)
    assert all(tensor is None for tensor in held.tensors)


def test_packed_tensors_are_held_too():
    x, y = (torch.randn(3, requires_grad=True) for _ in range(2))
    f = compiled(lambda x, y: (x.exp().sin(), y.exp().sin()), [x, y])
    with torch.autograd.graph.saved_tensors_hooks(lambda t: t.double(), lambda t: t.float()):
        a, b = f(x, y)
    a.sum().backward()
    b.sum().backward()
    torch.testing.assert_close(x.grad, x.exp().cos() * x.exp())
    torch.testing.assert_close(y.grad, y.exp().cos() * y.exp())


def of_one_graph(left, right):
    return left * right, right.sum(), (left + right)[1:]


@pytest.mark.parametrize("fn", [beside, bound_together, of_one_graph])
@pytest.mark.parametrize("removed", [False, True])
def test_hooks_are_called_for_results_with_gradients_alone(fn, removed):
    def step(run):
        seen = []
        for number in range(3):
            results = run(*(leaf.exp() for leaf in leaves_of([(3,), (3,)])))[:3]
            for place, result in enumerate(results):
                handle = result.register_hook(
                    lambda grad, place=place: seen.append(torch.full_like(grad, place))
                )
                result.register_hook(lambda grad: grad * 2)
                if removed and place:
                    handle.remove()
            results[number].sum().backward()
        return [sorted(seen, key=lambda t: (t.dim(), t.sum()))]

    same(step(compiled(fn, [leaf.exp() for leaf in leaves_of([(3,), (3,)])])), step(fn))
