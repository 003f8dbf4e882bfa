"""NumPy scalars that change from call to call: compiled once more, then like Python's numbers; exact in class and value."""

from __future__ import annotations

import math
import warnings
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest
import torch

import fxstack_capture as fx
from fxstack_capture import native

if TYPE_CHECKING:
    from collections.abc import Callable

pytestmark = pytest.mark.skipif(not native.AVAILABLE, reason="needs the frame hook")

X = torch.arange(6.0).reshape(2, 3)
REALS = tuple(map(np.float64, (2.5, 3.25, 5.0, 7.75)))
HALVES = tuple(map(np.float32, (2.5, 3.25, 5.1, 7.75)))
WORDS = tuple(map(np.int64, (2, 3, 4, 5)))
SHORTS = tuple(map(np.int16, (2, 3, 4, 5)))
EDGES = tuple(map(np.float64, (2.5, 3.5, 0.0, -0.0, math.nan, math.inf, -math.inf, 1e308, 5e-324)))
WORD_EDGES = tuple(map(np.int64, (2, 3, 0, 1, -7, 2**31, 2**40, 2**61, 2**62, -(2**63), 2**63 - 1)))


def _facts(value: Any) -> Any:
    if isinstance(value, torch.Tensor):
        return value.dtype, value.shape, value.stride(), repr(value.tolist())
    if isinstance(value, np.ndarray):
        return value.dtype, value.shape, repr(value.tolist())
    return [*map(_facts, value)] if isinstance(value, (tuple, list)) else (type(value), repr(value))


def _outcome(fn: Callable[..., Any], value: Any) -> Any:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        try:
            return _facts(fn(value))
        except (ArithmeticError, TypeError, ValueError, IndexError, RuntimeError, AttributeError) as error:
            return type(error), str(error)


def _graphs(fn: Callable[..., Any], values: tuple[Any, ...]) -> int:
    """Every value gives what it gives in eager; how many graphs it took (one, where numbers were seen to change before)."""
    graphs: list[torch.fx.GraphModule] = []

    def backend(graph_module: torch.fx.GraphModule, _inputs: object) -> Callable[..., Any]:
        graphs.append(graph_module)
        return graph_module.forward

    compiled = fx.optimize(backend)(fn)
    for value in values:
        assert _outcome(compiled, value) == _outcome(fn, value), value
    return len(graphs)


def _stored(s: Any) -> torch.Tensor:
    y = X.clone()
    y[0] = s
    return y


class _Config:
    def __init__(self, rate: Any) -> None:
        self.rate = rate


IN_TORCH = (
    lambda s: (X * s, s * X, s - X, X / s, s / (X + 1), X**s, X < s, s < X),
    lambda s: torch.add(X, X, alpha=-s) if isinstance(s, np.floating) else X + s,
    lambda s: (X.clone().mul_(s), X.clamp(s)),
    lambda s: (torch.tensor(s), torch.as_tensor(s) * X),
    lambda s: (X * float(s), X * int(s), X * s.item()),
    lambda s: (X * 1, s, [s][0] is s, type(s), s.dtype, isinstance(s, float)),
    lambda s: (lambda c: X * c["a"][0])({"a": [s]}),
    lambda s: (lambda c: (X * c.rate, c.rate))(_Config(s)),
    lambda s: np.arange(3.0) * s,
    lambda s: np.arange(3, dtype=np.int16) + s,
)

ARITHMETIC = (
    lambda s: X * (1 - s / 100),
    lambda s: (X * 1, s + 1, 2 * s, s * s, -s, s - s, s / 2, 2 / s),
    lambda s: (X * 1, s * 0.5, s / 3, type(s * 2), sum([s, s])),
    lambda s: (X * 1, s > 1, 10 >= s, s != 0),
    lambda s: X * s if s > 1 else X,
    lambda s: X if s else X * 2,
    lambda s: X * min(s, 100),
)

VALUES = (
    lambda s: (X.clamp(max=s), torch.where(X > 1, X, s)),
    lambda s: (X * 1, s**2, s // 2, s % 2, abs(s), +s, round(s, 1), divmod(s, 2)),
    lambda s: (X * 1, f"{s:.2f} {s}", repr(s), "%s" % s, hash(s)),  # noqa: UP031 - the operator
    lambda s: (X * 1, np.sqrt(s), np.full(3, s), math.floor(s), complex(s)),
    lambda s: (X * 1, {s: 1}, s in {2, 3}, s.tolist(), s.astype(np.float32) * 2),
    lambda s: s.missing,
    lambda s: s(),
    lambda s: [*s],
)


@pytest.mark.parametrize("values", [REALS, HALVES, WORDS, SHORTS], ids=lambda v: type(v[0]).__name__)
@pytest.mark.parametrize("fn", IN_TORCH)
def test_are_numbers_to_torch(fn: Any, values: Any) -> None:
    assert _graphs(fn, values) <= 2


@pytest.mark.parametrize("values", [REALS, WORDS], ids=lambda v: type(v[0]).__name__)
@pytest.mark.parametrize("fn", ARITHMETIC)
def test_are_computed_with(fn: Any, values: Any) -> None:
    assert _graphs(fn, values) <= 2


@pytest.mark.parametrize("values", [REALS, HALVES, WORDS, SHORTS], ids=lambda v: type(v[0]).__name__)
@pytest.mark.parametrize("fn", VALUES + ARITHMETIC)
def test_are_constants_where_their_value_counts(fn: Any, values: Any) -> None:
    _graphs(fn, values)


@pytest.mark.parametrize("fn", IN_TORCH + ARITHMETIC)
@pytest.mark.parametrize("values", [EDGES, WORD_EDGES], ids=lambda v: type(v[0]).__name__)
def test_are_exact_at_the_edges(fn: Any, values: Any) -> None:
    _graphs(fn, values)


@pytest.mark.parametrize(
    ("fn", "graphs"),
    [
        (lambda s: (X[:, :s], X[..., -s:], X[0, s - 2 : s]), 3),  # the last is more than there is
        (lambda s: (torch.zeros(9).narrow(0, 0, s), X.repeat(s, 1), torch.roll(X, s)), 2),
        (lambda s: (X * 1, s // 2, s % 3, (s + 1) * 7 - s), 2),
    ],
)
def test_integers_are_indices_and_sizes(fn: Any, graphs: int) -> None:
    assert _graphs(fn, WORDS) == graphs


def test_stored_in_a_tensor() -> None:
    assert _graphs(_stored, REALS) == 2
    _graphs(_stored, HALVES)


def test_over_a_graph_break() -> None:
    def broken(s: Any) -> Any:
        t = s * 2
        fx.graph_break()
        return X * t, t, s

    assert _graphs(broken, REALS) <= 4  # two for each part


def test_a_result_that_is_an_argument_stays_that_object() -> None:
    compiled = fx.optimize(lambda graph, _: graph.forward)(lambda s: (X * s, s))
    assert all(compiled(value)[1] is value for value in REALS)
