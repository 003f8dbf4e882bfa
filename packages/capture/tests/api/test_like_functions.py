"""A compiled function has the attributes of a function, and a compiled module follows replaced calls."""

import functools
import inspect

import pytest
import torch
from torch import nn

from fxstack_capture import optimize

X = torch.randn(2, 3)
NAMES = "defaults kwdefaults wrapped module qualname name annotations code globals closure doc".split()


def plain(x, n: int = 2, *, k: float = 1.5) -> torch.Tensor:
    """Text."""
    return x * n * k


def closed(scale):
    def inner(x):
        return x * scale

    return inner


@functools.wraps(plain)
def wrapping(*args, **kwargs):
    return plain(*args, **kwargs)


class Net(nn.Module):
    def forward(self, x, n=3):
        return x * n


@pytest.mark.parametrize("fn", [plain, closed(2), wrapping, lambda x, y=1: x + y, Net().forward])
def test_attributes_are_those_of_the_function(fn):
    made, by_torch = optimize()(fn), torch.compile(fn, backend="eager")
    for name in NAMES:
        name = f"__{name}__"  # noqa: PLW2901
        assert hasattr(made, name) == hasattr(by_torch, name)
        expected = fn if name == "__wrapped__" else getattr(fn, name)
        assert getattr(made, name) == expected
    assert inspect.signature(made) == inspect.signature(by_torch)
    assert torch.equal(made(X), fn(X))


def replacement(original, calls):
    def call(self, *args, **kwargs):
        calls.append(type(self).__name__)
        return original(self, *args, **kwargs) + 1

    return call


@pytest.mark.parametrize("cls", [nn.Module, Net])
def test_a_replaced_call_is_seen_at_the_root(cls, monkeypatch):
    model, calls = Net(), []
    made = optimize()(model)
    expected = [made(X)]
    with monkeypatch.context() as patch:
        patch.setattr(cls, "__call__", replacement(nn.Module.__call__, calls), raising=False)
        expected += [model(X), made(X), made(X)]
    expected += [model(X), made(X)]
    for index, offset in enumerate([0, 1, 1, 1, 0, 0]):
        assert torch.equal(expected[index], X * 3 + offset)
    assert calls == ["Net"] * 3
