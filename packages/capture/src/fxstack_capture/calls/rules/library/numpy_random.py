"""Module ``numpy.random``: NumPy's own generator draws before the graph runs, in order with all other draws.

Drawn arrays are inputs of the graph. Single drawn numbers are symbols (``trace.random_draws``). The arguments
of a draw must be constants, with one exception: a permuted array. For it, the frame draws the permutation,
and the graph applies it.
"""

from __future__ import annotations

import operator
from collections.abc import Callable
from functools import partial
from typing import Any

import numpy as np
import torch

from fxstack_capture.breaks import GraphBreak, graph_break
from fxstack_capture.calls.rules import RULES
from fxstack_capture.numpy_side.array import Array
from fxstack_capture.shapes.policy import is_static
from fxstack_capture.sources import Source, pinned
from fxstack_capture.trace.numpy_types import TORCH_OF, is_dtype_like
from fxstack_capture.trace.state import Args, Kwargs, Trace

# Limits: some uses end the graph: generators other than the module's own, choice of one item of an array,
# shuffle of a list, get_state and set_state.


_STATE = np.random.RandomState
_GLOBAL: Any = vars(np.random)["mtrand"]._rand
_NAMES = (
    *("beta", "binomial", "chisquare", "choice", "dirichlet", "exponential", "f", "gamma", "geometric"),
    *("gumbel", "hypergeometric", "laplace", "logistic", "lognormal", "logseries", "multinomial"),
    *("multivariate_normal", "negative_binomial", "noncentral_chisquare", "noncentral_f", "normal"),
    *("pareto", "permutation", "poisson", "power", "rand", "randint", "randn", "random", "random_sample"),
    *("rayleigh", "seed", "standard_cauchy", "standard_exponential", "standard_gamma", "standard_normal"),
    *("standard_t", "triangular", "uniform", "vonmises", "wald", "weibull", "zipf"),
)


def _draw(trace: Trace, fn: Callable[..., Any], args: Args, kwargs: Kwargs) -> Any:
    """Draw with the module's generator. The results are inputs of the graph. Break the graph for any other
    generator.
    """
    generator, *arguments = args
    if generator is not _GLOBAL:
        raise _refusal(fn)
    if fn.__name__ in ("permutation", "choice") and arguments and type(arguments[0]) is Array:
        return _picked(trace, fn, arguments, kwargs)
    constants = tuple(_constant(trace, fn, value) for value in arguments)
    named = {name: _constant(trace, fn, value) for name, value in kwargs.items()}
    return _drawn(trace, fn, constants, named)


def _drawn(trace: Trace, fn: Callable[..., Any], args: Args, kwargs: Kwargs) -> Any:
    """Draw with constant arguments. A drawn array becomes an input of the graph, and a drawn number a symbol."""
    draws = trace.objects.draws
    example = draws.example(fn, _GLOBAL, args, kwargs)
    if type(example) is not np.ndarray:
        if is_static(trace.options) and example is not None:
            raise graph_break("unsupported-call", f"numpy.random.{fn.__name__} under dynamic=False")
        return draws.result_of(fn, _source(), args, kwargs, example)
    if example.dtype not in TORCH_OF:
        raise _refusal(fn)
    tensor = torch.from_numpy(example)
    source = draws.add_at(_named(fn), _source(), args, kwargs)
    torch_side: Any = trace.torch
    return torch_side.arrays.from_tensor(torch_side.enter_drawn(tensor, source))


def _source() -> Source:
    """Return the source of NumPy's own generator."""
    return pinned(_GLOBAL, "numpy.random")


def _named(fn: Callable[..., Any]) -> Callable[..., Any]:
    """Return a function that draws an array as a tensor. It has the name of ``fn``."""
    drawn = partial(_as_tensor, fn)
    drawn.__name__ = fn.__name__  # type: ignore[attr-defined]
    return drawn


def _as_tensor(fn: Callable[..., Any], *args: object, **kwargs: object) -> torch.Tensor:
    """Draw an array with ``fn``, and return it as a tensor."""
    return torch.from_numpy(fn(*args, **kwargs))


def _constant(trace: Trace, fn: Callable[..., Any], value: Any) -> Any:
    """Return an argument of a draw as a constant. A symbolic number is guarded by its value.

    Break the graph for anything but None, numbers, dtypes, and tuples and lists of these.
    """
    value = trace.torch.specialize(value)
    if type(value) in (tuple, list, torch.Size):
        return type(value)(_constant(trace, fn, item) for item in value)
    plain = value is None or type(value) in (int, float, bool) or is_dtype_like(value)
    if not plain:
        raise _refusal(fn)
    return value


def _refusal(fn: Callable[..., Any]) -> GraphBreak:
    """Return the graph break for a draw that cannot be captured."""
    return graph_break("unsupported-call", f"numpy.random.{fn.__name__}")


# --- permutations of arrays ----------------------------------------------------------------------


def _length(trace: Trace, fn: Callable[..., Any], array: Array) -> int:
    """Return the number of rows of ``array``, as a constant with a guard. Break the graph for an array
    without dimensions.
    """
    if array.example.ndim == 0:
        raise _refusal(fn)
    length: int = trace.torch.specialize(array.tensor.shape[0])
    return length


def _picked(trace: Trace, fn: Callable[..., Any], arguments: list[Any], kwargs: Kwargs) -> Any:
    """Return items of an array. NumPy draws their positions in the same way as from ``range(length)``. Break
    the graph for a single draw, and for a choice from an array with several dimensions.
    """
    array, *rest = arguments
    length = _length(trace, fn, array)
    if fn.__name__ == "choice" and array.example.ndim != 1:
        raise _refusal(fn)
    positions = _draw(trace, fn, (_GLOBAL, length, *rest), kwargs)
    if type(positions) is not Array:
        raise _refusal(fn)
    return trace.calls.call(operator.getitem, (array, positions), {})


@RULES.rule(_STATE.shuffle)
def _shuffle(trace: Trace, _fn: object, args: Args, kwargs: Kwargs) -> None:
    """Permute the rows of an array. The order is drawn before the graph, and the graph applies it. Break the
    graph for any other object or generator.
    """
    generator, *arguments = args
    fn = _STATE.permutation
    if generator is not _GLOBAL or kwargs or len(arguments) != 1 or type(arguments[0]) is not Array:
        raise _refusal(_STATE.shuffle)
    (array,) = arguments
    order = _drawn(trace, fn, (_length(trace, _STATE.shuffle, array),), {})
    mixed = trace.calls.call(operator.getitem, (array, order), {})
    trace.calls.call(operator.setitem, (array, Ellipsis, mixed), {})


def _draw_by_module(trace: Trace, fn: Callable[..., Any], args: Args, kwargs: Kwargs) -> Any:
    """Draw for a function of the module that is not a method of its generator."""
    return _draw(trace, _METHODS[fn], (_GLOBAL, *args), kwargs)


_METHODS: dict[Any, Callable[..., Any]] = {
    np.random.seed: _STATE.seed,
    np.random.sample: _STATE.random_sample,
    np.random.ranf: _STATE.random_sample,
}
RULES.add(_draw, *(vars(_STATE)[name] for name in _NAMES))
RULES.add(_draw_by_module, *_METHODS)
