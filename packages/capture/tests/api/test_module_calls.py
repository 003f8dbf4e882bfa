"""Calls of modules: one guard says that nothing but ``forward`` runs, and it notices whatever changes that."""

import pytest
import torch
from beside import breaks_beside_plain
from torch import nn

import fxstack_capture
from fxstack_capture import native

pytestmark = pytest.mark.skipif(not native.AVAILABLE, reason="needs the frame hook")
X = torch.arange(6.0).reshape(2, 3)


class Outer(nn.Module):
    def __init__(self, inner):
        super().__init__()
        self.inner = inner

    def forward(self, x):
        return self.inner(x) + 1


class Doubling(nn.Module):
    def forward(self, x):
        return x * 2


class Watching(Doubling):
    """Its hooks are what ``__getattribute__`` says."""

    def __getattribute__(self, name):
        if name == "_forward_hooks":
            return {0: lambda module, args, out: out + 100}
        return super().__getattribute__(name)


class HookedInside(nn.Module):
    def __init__(self):
        super().__init__()
        self.inner = Doubling()

    def forward(self, x):
        before = self.inner(x)
        handle = self.inner.register_forward_hook(lambda module, args, out: out + 10)
        between = self.inner(x)
        handle.remove()
        return before + between * self.inner(x)


def hook(model):
    model.inner.register_forward_hook(lambda module, args, out: out + 1)


def pre_hook(model):
    model.inner.register_forward_pre_hook(lambda module, args: (args[0] * 3,))


def own_forward(model):
    model.inner.forward = lambda x: x - 1


def other_class_forward(model):
    model.inner.__class__ = type("Other", (nn.Module,), {"forward": lambda self, x: x / 2})


def nothing(_model):
    pass


@pytest.mark.parametrize("change", [hook, pre_hook, own_forward, other_class_forward, nothing])
def test_changes_after_compilation(change):
    model = Outer(Doubling())
    compiled = fxstack_capture.optimize()(model)
    assert torch.equal(compiled(X), X * 2 + 1)
    change(model)
    assert torch.equal(compiled(X), model(X))


def test_global_hooks_after_compilation():
    model = Outer(Doubling())
    compiled = fxstack_capture.optimize()(model)
    assert torch.equal(compiled(X), X * 2 + 1)
    handle = nn.modules.module.register_module_forward_hook(lambda module, args, out: out + 5)
    try:
        assert torch.equal(compiled(X), model(X))
    finally:
        handle.remove()
    assert torch.equal(compiled(X), X * 2 + 1)


@pytest.mark.parametrize("make", [lambda: Outer(Watching()), HookedInside])
def test_hooks_that_are_no_members(make):
    assert torch.equal(fxstack_capture.optimize()(make())(X), make()(X))


def test_one_guard_a_module():
    model = nn.Sequential(*(Doubling() for _ in range(20)))
    explained = fxstack_capture.explain(model)(X)
    kinds = [type(guard.check).__name__ for frame in explained.frames for guard in frame.guards]
    assert kinds.count("MembersAre") >= 20
    assert kinds.count("LengthIs") + kinds.count("HasKey") < 20


def test_backward_hooks_end_the_graph_and_nothing_beside_them_is_compiled():
    model = nn.Linear(2, 2)
    model.register_full_backward_hook(lambda module, into, out: (into[0] * 2,))

    def step(x):
        return torch.autograd.grad(model(x).sum(), x)

    breaks = breaks_beside_plain(step, lambda: (torch.ones(1, 2, requires_grad=True),))
    assert set(breaks) == {"unsupported-call"}
