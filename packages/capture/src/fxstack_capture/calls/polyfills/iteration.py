"""Requests for ``iter`` and ``next``."""

from __future__ import annotations

from typing import Any

from fxstack_capture.calls.callbacks import Route
from fxstack_capture.calls.polyfills.finding import method_of, special
from fxstack_capture.calls.readers import behind
from fxstack_capture.interpreter import polyfills as polyfill
from fxstack_capture.objects.kinds.consumed_iterators import read_by
from fxstack_capture.trace.state import Calls, Request


def iterate(calls: Calls, value: object) -> Request | None:
    method = special(calls, value, "__iter__")
    return None if method is None else (polyfill.iterator_of, (method, value))


def advance(calls: Calls, iterator: Any) -> Request | None:
    """The request for ``next(iterator)``."""
    if type(iterator) in (map, filter):
        if id(iterator) in calls.objects.iterators:
            fn, *iterators = read_by(calls.objects, iterator)
        elif id(iterator) in calls.objects.opaque:
            return None
        else:
            fn, *iterators = iterator.__reduce__()[1]
            fn = fn.fn if type(fn) is Route else fn
            iterators = list(map(behind, iterators))
        mapped = type(iterator) is map
        return polyfill.next_of_map if mapped else polyfill.next_of_filter, (fn, *iterators)
    return method_of(calls, iterator, "__next__")


def calls_back(calls: Calls, value: object) -> bool:
    """Whether iterating over ``value`` calls functions of the program that are not generators."""
    if type(value) in (map, filter):
        return advance(calls, value) is not None
    return advance(calls, value) is not None or iterate(calls, value) is not None
