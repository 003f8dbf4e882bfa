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
    outputs = compiled(fn, inputs)(*inputs)
    seen = []
    for node in {output.grad_fn for output in outputs}:
        node.register_hook(lambda found, given, node=node: seen.append((node, given, found)))
    torch.autograd.backward([outputs[place].sum() for place in wanted], retain_graph=retain)
    return seen


def present(values):
    return [value for value in values if value is not None]


@pytest.mark.parametrize("wanted", [(0,), (1,), (0, 1)])
@pytest.mark.parametrize("fn", [joined, apart])
def test_gradients(fn, wanted):
    for node, given, expected in runs(fn, wanted):
        made = traceable(node, given)
        assert_close(present(made(node, node.saved_tensors, *given)), present(expected))


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
