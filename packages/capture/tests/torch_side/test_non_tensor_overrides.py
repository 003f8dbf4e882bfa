"""Objects with ``__torch_function__`` that are no tensors: torch calls the method as in eager."""

from __future__ import annotations

import warnings
from typing import TYPE_CHECKING, Any

import pytest
import torch
import torch.nn.functional as F  # noqa: N812 - the usual name

import fxstack_capture as fx
from fxstack_capture import native

if TYPE_CHECKING:
    from collections.abc import Callable

pytestmark = pytest.mark.skipif(not native.AVAILABLE, reason="needs the frame hook")
X = torch.ones(3)


class Duck:
    """By a class method, as torch's documentation has it."""

    @classmethod
    def __torch_function__(cls, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        return cls.__name__, func, [kind.__name__ for kind in types]


class Sub(Duck):
    """Is asked before the class that it is derived from."""


class Refusing:
    """Implements nothing."""

    @classmethod
    def __torch_function__(cls, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        return NotImplemented


class Mode(torch.overrides.TorchFunctionMode):
    """Adds a mark to the answer."""

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        return "mode", func(*args, **(kwargs or {}))


class Late(Duck):
    """Gets another one after the first call."""


class Bound:
    """By a method of instances, which torch warns about."""

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        return "bound", func


class Answering:
    """Has every attribute, ``__torch_function__`` too, but not its class."""

    def __getattr__(self, name: str) -> Any:
        return lambda *_, **__: name


def _answer(fn: Callable[..., Any], value: object) -> Any:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        try:
            return fn(value)
        except (TypeError, AttributeError) as error:
            return str(error)


PROGRAMS = {
    "relu": F.relu,
    "dropout": F.dropout,
    "softmax": lambda duck: F.softmax(duck, -1),
    "layer_norm": lambda duck: F.layer_norm(X, (3,), duck),
    "mse_loss": lambda duck: F.mse_loss(X, duck),
    "einsum": lambda duck: torch.einsum("i,i", X, duck),
    "unique": torch.unique,
    "an operator in C": lambda duck: torch.add(X, duck),
    "a list in C": lambda duck: torch.stack([duck, duck]),
    "a tuple in C": lambda duck: torch.cat((X, duck), dim=0),
    "a keyword in C": lambda duck: torch.add(X, other=duck),
    "a method in C": lambda duck: X.add(duck),
    "an in-place method in C": lambda duck: X.clone().mul_(duck),
    "of two classes": lambda duck: torch.stack([Duck(), duck, Sub()]),
    "with a wrong argument": lambda duck: torch.stack([duck], dim="first"),
    "with a wrong item": lambda duck: torch.stack([duck, 3]),
    "among numbers": lambda duck: torch.full((2,), duck),
    "where a string is expected": lambda duck: torch.einsum(duck, X),
    "under a mode": lambda duck: _under_a_mode(duck),
    "turned off in C": lambda duck: _turned_off_in_c(duck),
    "has_torch_function": lambda duck: torch.overrides.has_torch_function((X, duck)),
    "turned off": lambda duck: _turned_off(duck),
}


def _under_a_mode(duck: object) -> Any:
    with Mode():
        return torch.stack([X, duck])


def _turned_off_in_c(duck: Any) -> Any:
    with torch._C.DisableTorchFunctionSubclass():
        return torch.stack([duck, duck])


def _turned_off(duck: object) -> Any:
    with torch._C.DisableTorchFunctionSubclass():
        return torch.overrides.has_torch_function((duck,))


@pytest.mark.parametrize("make", [Duck, Sub, Refusing, Bound, Answering, object])
@pytest.mark.parametrize("program", PROGRAMS.values(), ids=PROGRAMS)
def test_are_asked_as_in_eager(program: Callable[..., Any], make: type) -> None:
    fn = fx.optimize(lambda graph_module, _: graph_module.forward)(lambda duck: program(duck))
    assert [_answer(fn, make()) for _ in range(2)] == [_answer(program, make())] * 2


def test_a_method_of_later_is_heeded(monkeypatch: pytest.MonkeyPatch) -> None:
    fn = fx.optimize(lambda graph_module, _: graph_module.forward)(F.relu)
    assert _answer(fn, Late()) == _answer(F.relu, Late())
    monkeypatch.setattr(Late, "__torch_function__", classmethod(lambda *_: "later"), raising=False)
    assert _answer(fn, Late()) == "later"


class Box:
    """A pair of tensors, stacked as one."""

    def __init__(self, first: torch.Tensor, second: torch.Tensor) -> None:
        self.parts = first, second

    @classmethod
    def __torch_function__(cls, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        if func is not torch.stack:
            return NotImplemented
        boxes, *rest = args
        return cls(*(func([box.parts[i] for box in boxes], *rest, **(kwargs or {})) for i in range(2)))


@pytest.mark.parametrize("outside", [True, False])
def test_operators_of_objects_are_in_one_graph(outside: bool) -> None:
    graphs = []

    def program(x: torch.Tensor, box: Any) -> Any:
        box = box if outside else Box(x, x + 2)
        stacked = torch.stack([box, Box(x * 2, x - 1)], dim=1)
        return stacked.parts[0] * 2, stacked.parts[1].sum()

    fn = fx.optimize(lambda graph_module, _: graphs.append(1) or graph_module.forward)(program)
    for number in (1.0, 2.0):
        box = Box(X * number, X)
        for found, expected in zip(fn(X, box), program(X, box), strict=True):
            assert torch.equal(found, expected)
    assert len(graphs) == 1
