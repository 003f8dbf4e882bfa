"""The traceable backward of each node of a compiled graph returns the gradients of its backward."""

import pytest
import torch
from compare import compiled
from torch.testing import assert_close

from fxstack_interchange.operators.hooking import TRACEABLE_BACKWARD


def joined(x, w):
    y = (x * w).sin()
    return y * x, y.exp() + w


def apart(x, w):
    return x.sin() * x, w.exp() * 2


def traceable(node, grads):
    make = getattr(type(node)._forward_cls, TRACEABLE_BACKWARD)
    return make(node, tuple(grad is None for grad in grads))


def runs(fn, wanted, *, retain=True):
    """The nodes of the results, each with the gradients that its backward got and returned."""
    inputs = [torch.arange(1.0, 5, requires_grad=True) for _ in range(2)]
    for value in inputs:
        value.register_hook(lambda grad: None)  # inputs without hooks have no nodes of their own
    outputs = compiled(fn, inputs)(*inputs)
    seen = []
    for node in {output.grad_fn for output in outputs}:
        node.register_hook(lambda found, given, node=node: seen.append((node, given, found)))
    torch.autograd.backward([outputs[place].sum() for place in wanted], retain_graph=retain)
    return seen


def present(values):
    return [value for value in values if value is not None]


@pytest.mark.parametrize("wanted", [(0,), (1,), (0, 1)])
def test_gradients(wanted):
    for node, given, expected in runs(joined, wanted):
        made = traceable(node, given)
        assert_close(present(made(node, node.saved_tensors, *given)), present(expected))


@pytest.mark.parametrize("place", [0, 1])
def test_gradients_of_an_input_that_one_result_reaches(place):
    ((node, given, _),) = runs(apart, (place,))
    inputs = [torch.arange(1.0, 5, requires_grad=True) for _ in range(2)]
    apart(*inputs)[place].sum().backward()
    found = traceable(node, given)(node, node.saved_tensors, *given)
    assert_close(present(found), [given[0], inputs[place].grad])
    ((after, _), (behind, _), _) = node.next_functions
    assert present(traceable(behind, [None])(behind, (), None)) == []
    assert present(traceable(after, [None, None])(after, (), None, None)) == []


def test_freed_tensors_have_no_key():
    node, *_ = runs(joined, (0, 1), retain=False)[0]
    with pytest.raises(RuntimeError, match="second time"):
        type(node)._forward_cls._compiled_autograd_key(node)


def test_changed_tensors_have_no_key():
    x = torch.arange(1.0, 5, requires_grad=True)
    first, _ = compiled(joined, [x, x.detach()])(x, x.detach())
    type(first.grad_fn)._forward_cls._compiled_autograd_key(first.grad_fn)
    with torch.no_grad():
        x.add_(1)
    with pytest.raises(RuntimeError, match="modified by an inplace operation"):
        type(first.grad_fn)._forward_cls._compiled_autograd_key(first.grad_fn)
