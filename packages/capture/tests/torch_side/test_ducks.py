"""Objects that are no tensors and have a ``__torch_function__``: torch's functions in Python ask them as in eager."""

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
    "has_torch_function": lambda duck: torch.overrides.has_torch_function((X, duck)),
    "turned off": lambda duck: _turned_off(duck),
}


def _turned_off(duck: object) -> Any:
    with torch._C.DisableTorchFunctionSubclass():
        return torch.overrides.has_torch_function((duck,))


@pytest.mark.parametrize("make", [Duck, Bound, Answering, object])
@pytest.mark.parametrize("program", PROGRAMS.values(), ids=PROGRAMS)
def test_are_asked_as_in_eager(program: Callable[..., Any], make: type) -> None:
    fn = fx.optimize(lambda graph_module, _: graph_module.forward)(lambda duck: program(duck))
    assert [_answer(fn, make()) for _ in range(2)] == [_answer(program, make())] * 2


def test_a_method_of_later_is_heeded(monkeypatch: pytest.MonkeyPatch) -> None:
    fn = fx.optimize(lambda graph_module, _: graph_module.forward)(F.relu)
    assert _answer(fn, Late()) == _answer(F.relu, Late())
    monkeypatch.setattr(Late, "__torch_function__", classmethod(lambda *_: "later"), raising=False)
    assert _answer(fn, Late()) == "later"
