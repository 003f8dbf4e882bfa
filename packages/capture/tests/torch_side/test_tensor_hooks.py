"""Hooks on computed tensors: part of the graph where they only compute, and eager's in every case."""

from __future__ import annotations

import functools

import pytest
import torch

from fxstack_capture import Unsupported, explain, native, optimize

pytestmark = pytest.mark.skipif(not native.AVAILABLE, reason="needs the frame hook")

LOG = []


def double(g):
    return g * 2


def add(g, *, k):
    return g + k


def clipped(g):
    if g.dim() > 0 and not g.requires_grad:
        return g.clamp(max=0.5)
    return g


def logging(g):
    LOG.append(1)


def before_and_after(x):
    y = x * 2
    z = y + 1
    y.register_hook(double)
    return (z + y * 3).sum()


def two(x):
    y = x * 2
    y.register_hook(functools.partial(add, k=3))
    y.register_hook(double)
    return y * 3


def reads_what_is_changed_later(x):
    y, scale = x.sin(), torch.ones(3)
    y.register_hook(lambda g: g * scale + y)
    scale.mul_(5)
    return y * y


def gives_nothing(x):
    y = x * 2
    y.register_hook(lambda g: None)
    return y * y


def changed_in_place(x):
    y = x * 2
    y.register_hook(double)
    y.mul_(3)
    return y * y


def removed(x):
    y = x * 2
    handle = y.register_hook(double)
    y.register_hook(clipped)
    handle.remove()
    handle.remove()
    return y * y


def by_keyword(x):
    y = x * 2
    y.register_hook(hook=double)
    return y * y


def in_a_loop(x):
    for i in range(3):
        x = x.sin()
        x.register_hook(functools.partial(add, k=i))
    return x * 2


def view_leaves(x):
    y = x * 2
    z = y.view(3, 1)
    y.register_hook(double)
    return z


def under_cond(x):
    y = x * 2
    y.register_hook(double)
    return torch.cond(x.sum() > 0, torch.sin, torch.cos, (y,))


def in_a_backward_inside(x):
    y = x * 2
    y.register_hook(double)
    (y * y).sum().backward()
    return y.detach() + 1


IN_ONE_GRAPH = [
    *(before_and_after, two, reads_what_is_changed_later, gives_nothing, changed_in_place, removed),
    *(by_keyword, in_a_loop, view_leaves, under_cond, in_a_backward_inside),
]


def leaves(x):
    y = x * 2
    y.register_hook(double)
    return y


def leaves_beside_its_uses(x):
    y = x * 2
    before = y.sin()
    y.register_hook(double)
    return before + y.exp(), y


def several_on_what_leaves(x):
    y = x * 2
    y.register_hook(double)
    y.register_hook(logging)
    y.register_hook(clipped)
    return y


def on_an_input_with_history(x):
    def inner(z):
        z.register_hook(double)
        z.register_hook(logging)
        return z * z

    return inner(x * 3)


def many_with_effects(x):
    for _ in range(20):
        x = x.sin()
        x.register_hook(logging)
    return x * 2


def handle_leaves(x):
    y = x * 2
    return y * y, y.register_hook(double)


def leaves_changed_in_place(x):
    y = x * 2
    y.register_hook(double)
    y.mul_(3)
    return y


def leaves_a_graph_that_changes_an_input(x, count=torch.zeros(1)):
    count.add_(1)
    y = x * 2
    y.register_hook(double)
    return y


def removed_from_what_leaves(x):
    y = x * 2
    y.register_hook(double).remove()
    return y


def has_an_effect_in_a_backward_inside(x):
    y = x * 2
    y.register_hook(logging)
    (y * y).sum().backward()
    return y.detach() + 1


def has_an_effect(x):
    y = x * 2
    y.register_hook(logging)
    return y * y


def changes_its_gradient(x):
    y = x * 2
    y.register_hook(lambda g: g.mul_(2))
    return y * y


def removed_after_a_backward(x):
    y = x * 2
    handle = y.register_hook(double)
    z = (y * y).sum()
    z.backward(retain_graph=True)
    handle.remove()
    return z


REGISTERED_LATER = [
    *(leaves, leaves_beside_its_uses, several_on_what_leaves, on_an_input_with_history, many_with_effects),
    *(has_an_effect, changes_its_gradient),
]
BREAKS_UNLESS_WHOLE = [has_an_effect, on_an_input_with_history, several_on_what_leaves]
BREAKS = [
    *(handle_leaves, removed_after_a_backward, leaves_changed_in_place, removed_from_what_leaves),
    *(has_an_effect_in_a_backward_inside, leaves_a_graph_that_changes_an_input),
]


def gradient(fn):
    LOG.clear()
    x = torch.tensor([1.0, 2.0, 3.0], requires_grad=True)
    result = fn(x)
    y = result[0] if isinstance(result, tuple) else result
    if y.requires_grad:
        weights = torch.arange(1.0, y.numel() + 1).view(y.shape)
        (y * weights).sum().backward()
    return y.detach(), x.grad, torch.tensor(len(LOG))


@pytest.mark.parametrize("fn", IN_ONE_GRAPH)
def test_hooks_that_compute_are_part_of_the_graph(fn):
    graphs = []
    compiled = optimize(lambda gm, _: (graphs.append(gm), gm)[1], fullgraph=True)(fn)
    for _ in range(2):
        torch.testing.assert_close(gradient(compiled), gradient(fn))
    assert len(graphs) == 1


@pytest.mark.parametrize("outer", [False, True])
@pytest.mark.parametrize("fn", REGISTERED_LATER)
def test_other_hooks_are_registered_after_the_graph_has_run(fn, outer):
    def later(run):
        """A hook from outside runs after those from inside."""

        def hooked(x):
            result = run(x)
            for value in result if isinstance(result, tuple) else (result,):
                value.register_hook(lambda g: g + 1)
            return result

        return hooked if outer else run

    graphs = []
    compiled = optimize(lambda gm, _: (graphs.append(gm), gm)[1], fullgraph=True)(fn)
    for _ in range(2):
        torch.testing.assert_close(gradient(later(compiled)), gradient(later(fn)))
    assert len(graphs) == 1


@pytest.mark.parametrize("fn", BREAKS_UNLESS_WHOLE)
def test_hooks_with_effects_end_the_graph_unless_it_must_be_whole(fn):
    assert explain(fn)(torch.ones(3, requires_grad=True)).breaks
    compiled = optimize()(fn)
    for _ in range(2):
        torch.testing.assert_close(gradient(compiled), gradient(fn))


@pytest.mark.parametrize("fn", BREAKS)
def test_other_hooks_end_the_graph(fn):
    with pytest.raises(Unsupported, match="register_hook|HandleInGraph"):
        optimize(fullgraph=True)(fn)(torch.ones(3, requires_grad=True))
    compiled = optimize()(fn)
    for _ in range(2):
        torch.testing.assert_close(gradient(compiled), gradient(fn))


@pytest.mark.parametrize("wrong", [lambda g: g[:2], lambda g: 3])
def test_a_wrong_result_is_eagers_error(wrong):
    def fn(x):
        y = x * 2
        y.register_hook(wrong)
        return y * y

    def error(run):
        with pytest.raises((RuntimeError, TypeError)) as caught:
            gradient(run)
        return type(caught.value), str(caught.value)

    assert error(optimize()(fn)) == error(fn)


def test_what_a_hook_reads_is_guarded():
    factors = [2.0]

    def fn(x):
        y = x * 2
        y.register_hook(lambda g: g * factors[0])
        return y * y

    compiled = optimize(fullgraph=True)(fn)
    for factor in (2.0, 5.0, 2.0):
        factors[0] = factor
        torch.testing.assert_close(gradient(compiled), gradient(fn))
