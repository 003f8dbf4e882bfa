"""Module ``random``: numbers are drawn at the beginning of the frame, in order, and are symbols in the graph.

This applies to generators from outside, including the module's own generator, if the results of a call are
numbers of one type. Calls with objects of the program (``shuffle`` or ``choice`` of tensors) break the graph,
and so do calls with other results. A generator that the frame itself creates runs for real while tracing,
because its seed is known.
"""

from __future__ import annotations

import _random
import random
from collections.abc import Callable
from types import FunctionType
from typing import Any

from fxstack_capture.breaks import graph_break
from fxstack_capture.calls.native_run import run
from fxstack_capture.calls.rules import RULES
from fxstack_capture.shapes.policy import is_static
from fxstack_capture.trace.state import Args, Kwargs, Objects, Trace

# Limits: choice and shuffle of objects, getstate, and shuffle of a list from outside end the graph.


_LARGEST = 1 << 61
"""The bound of numbers that a symbol can hold."""
_FROM_NUMBERS = (
    *("random", "getrandbits", "randint", "randrange", "uniform", "triangular", "betavariate"),
    *("expovariate", "gammavariate", "gauss", "normalvariate", "lognormvariate", "seed"),
    *("vonmisesvariate", "paretovariate", "weibullvariate", "binomialvariate"),
)
"""Methods whose arguments are plain numbers."""
_FROM_POPULATIONS = ("choice", "choices", "sample", "shuffle")
"""Methods that choose from a sequence."""
_REFUSED = ("randbytes", "getstate", "setstate")
"""Methods that end the graph."""


def _draw(trace: Trace, fn: Callable[..., Any], args: Args, kwargs: Kwargs) -> Any:
    """Draw numbers with a generator from outside. The results are symbols of the graph. Break the graph for
    subclasses of the generator, under ``dynamic=False``, and for methods in ``_REFUSED``.
    """
    generator, *arguments = args
    objects = trace.objects
    if not objects.is_preexisting(generator):
        return _of_new(trace, fn, args, kwargs)
    if fn.__name__ in _REFUSED or type(generator) is not random.Random:
        raise _refusal(fn)
    if fn.__name__ == "shuffle" and not _shuffles_new(objects, arguments):
        raise _refusal(fn)
    if is_static(trace.options):
        raise graph_break("unsupported-call", f"random.{fn.__name__} under dynamic=False")
    plain = tuple(_plain(trace, fn, value) for value in arguments)
    named = {name: _plain(trace, fn, value) for name, value in kwargs.items()}
    if fn.__name__ == "getrandbits" and not all(n < _LARGEST.bit_length() for n in plain):
        raise _refusal(fn)
    if fn is random.Random.shuffle:
        arguments[0][:] = objects.draws.draw(shuffle_copy, generator, plain, named)
        return None
    return objects.draws.draw(fn, generator, plain, named)


def _shuffles_new(objects: Objects, arguments: list[Any]) -> bool:
    """Whether the argument is a list made in this trace.

    A list from outside may have another order in each call.
    """
    return len(arguments) == 1 and type(arguments[0]) is list and not objects.is_preexisting(arguments[0])


def shuffle_copy(generator: random.Random, items: tuple[float, ...]) -> list[float]:
    """Return the ``items`` in the order that ``generator.shuffle`` produces."""
    mixed = [*items]
    generator.shuffle(mixed)
    return mixed


def _refusal(fn: Callable[..., Any]) -> Any:
    """Return the graph break for a draw that cannot be captured."""
    return graph_break("unsupported-call", f"random.{fn.__name__}")


def _plain(trace: Trace, fn: Callable[..., Any], value: Any) -> Any:
    """Return an argument as a constant. Break the graph if this is impossible.

    The numbers of a population must have one type. Otherwise, the type of the result would depend on the
    drawn number.
    """
    value = trace.torch.specialize(value)
    if type(value) in (list, tuple, range) and fn.__name__ in _FROM_POPULATIONS:
        items = [trace.torch.specialize(item) for item in value]
        kinds = set(map(type, items))
        if len(kinds) > 1 or not kinds <= {int, float} or not all(map(_fits, items)):
            raise _refusal(fn)
        return value if type(value) is range else tuple(items)
    if value is not None and (type(value) not in (int, float) or not _fits(value)):
        raise _refusal(fn)
    return value


def _fits(number: float) -> bool:
    """Whether a symbol can hold the number."""
    return type(number) is float or -_LARGEST < number < _LARGEST


def _of_new(trace: Trace, fn: Callable[..., Any], args: Args, kwargs: Kwargs) -> Any:
    """Call a method of a generator that this trace has created. Break the graph if the system would provide
    the seed.

    Its state is known, unless the system has provided the seed.
    """
    if type(fn) is FunctionType:
        return trace.interp.call_function(fn, args, kwargs)
    if fn.__name__ == "seed" and all(value is None for value in args[1:]):
        raise graph_break("side-effect-call", "random.Random without a seed")
    return run(trace, fn, args, kwargs)


for _name in (*_FROM_NUMBERS, *_FROM_POPULATIONS, *_REFUSED):
    for _cls in (_random.Random, random.Random):
        _fn = vars(_cls).get(_name)
        if _fn is not None:
            RULES.add(_draw, _fn)
