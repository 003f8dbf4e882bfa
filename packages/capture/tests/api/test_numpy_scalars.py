"""NumPy scalars beside tensors: what torch takes them for, on either side of an operator."""

from __future__ import annotations

import operator
import warnings
from itertools import product
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest
import torch

import fxstack_capture as fx
from fxstack_capture import native

if TYPE_CHECKING:
    from collections.abc import Callable

pytestmark = pytest.mark.skipif(not native.AVAILABLE, reason="needs the frame hook")

NUMBERS = (np.float64(0.1), np.float32(2.5), np.float16(0.1), np.int64(2), np.int8(3), np.uint8(2))
ODD = (np.bool_(True), np.complex64(1 + 2j))  # noqa: FBT003 - the value, not an option
TENSORS = (torch.arange(3), torch.arange(3.0), torch.ones((), dtype=torch.float64))
OPERATORS = (
    *(operator.add, operator.sub, operator.mul, operator.truediv, operator.floordiv),
    *(operator.pow, operator.lt, operator.eq, operator.imul),
)


def _stored(x: torch.Tensor, s: Any) -> torch.Tensor:
    y = x + 1
    y[...] = s
    return y


CALLS = (
    _stored,
    torch.add,
    lambda x, s: torch.full((2,), s),
    lambda x, s: x.clamp(s),
    lambda x, s: torch.where(x > 1, x, s),
    lambda x, s: torch.tensor(s),
    lambda x, s: torch.as_tensor(s),
    lambda x, s: torch.tensor(s, dtype=torch.float32),
)


def _described(fn: Callable[..., Any], *args: Any) -> Any:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        try:
            result = fn(*(arg.clone() if isinstance(arg, torch.Tensor) else arg for arg in args))
        except (TypeError, RuntimeError) as error:
            return type(error), str(error)
    return result.dtype, result.shape, result.tolist()


def _compare(fn: Callable[..., Any], *args: Any) -> int:
    """Eager and compiled must agree; how many graphs there are."""
    graphs: list[torch.fx.GraphModule] = []

    def backend(graph_module: torch.fx.GraphModule, _inputs: object) -> Callable[..., Any]:
        graphs.append(graph_module)
        return graph_module.forward

    assert _described(fx.optimize(backend)(fn), *args) == _described(fn, *args)
    return len(graphs)


@pytest.mark.parametrize("op", OPERATORS[:-1], ids=lambda op: op.__name__)
def test_on_either_side_of_an_operator(op: Callable[[Any, Any], Any]) -> None:
    for scalar, tensor in product(NUMBERS, TENSORS):
        assert _compare(lambda a, b: op(a, b), scalar, tensor) == 1
        assert _compare(lambda a, b: op(a, b), tensor, scalar) == 1


@pytest.mark.parametrize("fn", CALLS)
def test_as_arguments(fn: Callable[..., Any]) -> None:
    for scalar, tensor in product(NUMBERS + ODD, TENSORS):
        _compare(fn, tensor, scalar)


@pytest.mark.parametrize("scalar", ODD)
def test_what_torch_takes_for_a_float(scalar: Any) -> None:
    for op, tensor in product(OPERATORS, TENSORS):
        _compare(lambda a, b, op=op: op(a, b), scalar, tensor)
        _compare(lambda a, b, op=op: op(a, b), tensor, scalar)
