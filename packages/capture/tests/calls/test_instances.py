"""``isinstance`` of tensors, arrays and symbolic numbers, which have stand-ins, and of classes that answer themselves."""

import collections.abc
import numbers
import typing

import numpy as np
import pytest
import torch

import fxstack_capture as fx
from fxstack_capture import native

pytestmark = pytest.mark.skipif(not native.AVAILABLE, reason="needs the frame hook")


class Checked(type):
    """As in jaxtyping, whose classes ask for sizes and dtypes."""

    def __instancecheck__(cls, value):
        return cls.reason(value) == ""

    def reason(cls, value):
        return "" if isinstance(value, torch.Tensor) and value.dim() == cls.dims else "another"


class Matrix(metaclass=Checked):
    dims = 2


class Large(
    metaclass=type("Sized", (type,), {"__instancecheck__": lambda cls, n: isinstance(n, int) and n > 2})
):
    pass


class Square(
    metaclass=type(
        "Flat", (type,), {"__instancecheck__": lambda cls, a: isinstance(a, np.ndarray) and a.ndim == 2}
    )
):
    pass


class Tagging(type(torch.Tensor)):
    def __instancecheck__(cls, value):
        return super().__instancecheck__(value) or getattr(value, "tag", None) == 1


class Tagged(torch.Tensor, metaclass=Tagging):
    pass


def tagged():
    x = torch.ones(2)
    x.tag = 1
    return x


@typing.runtime_checkable
class Summed(typing.Protocol):
    def sum(self): ...


X = torch.ones(2, 3)
CASES = {
    "a size": (lambda x: (isinstance(x, Matrix), isinstance(x[0], Matrix)), X),
    "several": (lambda x: (isinstance(x, (int, Matrix)), isinstance(x[0], (str, Matrix))), X),
    "a number": (lambda x: [isinstance(n, Large) for n in x.shape], X),
    "an array": (lambda a: (isinstance(a, Square), isinstance(a[0], (list, Square))), np.ones((2, 2))),
    "a tensor's class": (lambda x: (isinstance(x, Tagged), isinstance(x + 1, Tagged)), tagged()),
    "of that class": (lambda x: (isinstance(x, Tagged), isinstance(x, torch.Tensor)), X.as_subclass(Tagged)),
    "legacy": (
        lambda x: [isinstance(x, c) for c in (torch.FloatTensor, torch.LongTensor, torch.cuda.FloatTensor)],
        X,
    ),
    "legacy of a result": (lambda x: isinstance(x.long(), (torch.FloatTensor, torch.LongTensor)), X),
    "protocols": (lambda x: (isinstance(x, Summed), isinstance(x, typing.SupportsFloat)), X),
    "abstract": (
        lambda x: (isinstance(x, collections.abc.Sequence), isinstance(x.shape[0], numbers.Integral)),
        X,
    ),
    "parameters": (
        lambda p: (isinstance(p, torch.nn.Parameter), isinstance(p, torch.nn.Buffer)),
        torch.nn.Parameter(X),
    ),
}


@pytest.mark.parametrize("dynamic", [False, True])
@pytest.mark.parametrize("name", CASES)
def test_equals_eager(name, dynamic):
    ask, value = CASES[name]

    def f(x):
        return ask(x), x + 1

    assert fx.optimize(dynamic=dynamic)(f)(value)[0] == f(value)[0]
