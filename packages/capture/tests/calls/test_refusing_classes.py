"""Classes that refuse instance and class checks."""

import itertools
import typing

import pytest
import torch

import fxstack_capture


class Typed(typing.TypedDict):
    a: int


class Shaped(typing.Protocol):
    a: int


class Meta(type):
    def __instancecheck__(cls, _instance):
        raise ValueError("no instances")

    def __subclasscheck__(cls, _subclass):
        raise ValueError("no subclasses")


class Refusing(metaclass=Meta):
    pass


CLASSES = [Typed, Shaped, Refusing, typing.Any, typing.List[int], typing.Callable, (int, Typed)]  # noqa: UP006
USES = {
    "tensor": lambda x, cls: isinstance(x, cls),
    "number": lambda x, cls: isinstance(x.shape[0], cls),
    "dict": lambda _, cls: isinstance({}, cls),
    "subclass": lambda _, cls: issubclass(torch.Tensor, cls),
    "instance": lambda _, cls: type(cls()),
    "match": lambda x, cls: [1 for v in (x, 1) if isinstance(v, (cls, float))],
}


UNCOMPILED = [(use, cls) for use in ("tensor", "match") for cls in (typing.Callable,)]
"""Correct, but the whole function runs in plain Python."""
CASES = [case for case in itertools.product(USES, CLASSES) if case not in UNCOMPILED]


@pytest.mark.parametrize(("use", "cls"), CASES, ids=str)
def test_raise_what_plain_python_raises(use, cls, recwarn):
    def fn(x):
        try:
            return x + 1, USES[use](x, cls)
        except (TypeError, ValueError) as error:
            return x + 2, type(error), str(error)

    x = torch.ones(2)
    found = fxstack_capture.optimize(lambda graph, _: graph.forward)(fn)(x)
    assert repr(found) == repr(fn(x))
    assert not any("internal error" in str(warning.message) for warning in recwarn)
