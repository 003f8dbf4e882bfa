"""Requests for special methods of the program's classes, and for ``iter`` and ``next``.

A result of None stands for no request: the C code itself runs.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from fxstack_capture.calls.callbacks import Route, original_iterator
from fxstack_capture.calls.operators.plain_objects import is_ours
from fxstack_capture.calls.operators.protocol import special_method
from fxstack_capture.interpreter import polyfills as polyfill
from fxstack_capture.objects.kinds.consumed_iterators import read_by
from fxstack_capture.torch_side.numbers.symbols import symbolic_number
from fxstack_capture.trace.state import Calls, Request

Maker = Callable[..., Request | None]


def special(calls: Calls, obj: object, name: str) -> Any:
    """Return the Python function that implements a special method of a program's class, or None."""
    return None if symbolic_number(obj) or is_ours(obj) else special_method(calls, obj, name)


def method_of(calls: Calls, value: object, name: str, *args: object) -> Request | None:
    """Return the request that calls the special method ``name`` of ``value``. None if the program defines no
    such method.
    """
    method = special(calls, value, name)
    return None if method is None else (method, (value, *args))


def iterate(calls: Calls, value: object) -> Request | None:
    """Return the request for ``iter(value)``."""
    method = special(calls, value, "__iter__")
    return None if method is None else (polyfill.iterator_of, (method, value))


def advance(calls: Calls, iterator: Any) -> Request | None:
    """Return the request for ``next(iterator)``."""
    if type(iterator) in (map, filter):
        if id(iterator) in calls.objects.iterators:
            fn, *iterators = read_by(calls.objects, iterator)
        elif id(iterator) in calls.objects.opaque:
            return None
        else:
            fn, *iterators = iterator.__reduce__()[1]
            fn = fn.fn if type(fn) is Route else fn
            iterators = list(map(original_iterator, iterators))
        mapped = type(iterator) is map
        return polyfill.next_of_map if mapped else polyfill.next_of_filter, (fn, *iterators)
    return method_of(calls, iterator, "__next__")


def calls_back(calls: Calls, value: object) -> bool:
    """Whether iterating over ``value`` calls functions of the program that are not generators."""
    if type(value) in (map, filter):
        return advance(calls, value) is not None
    return advance(calls, value) is not None or iterate(calls, value) is not None
