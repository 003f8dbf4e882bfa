"""Route the callables that C code calls back through the dispatcher.

The frame hook intercepts Python functions only. ``Route`` objects therefore replace builtins, classes,
``attrgetter`` and partial objects that the program gives to ``map`` or as ``key=``. A ``Route`` asks the
dispatcher.
"""

from __future__ import annotations

import types
from typing import Any

from fxstack_capture import native
from fxstack_capture.calls.c_functions import Taken
from fxstack_capture.trace.state import Calls, Trace


def routed(
    trace: Trace, taken: Taken, args: tuple[Any, ...], kwargs: dict[str, Any]
) -> tuple[tuple[Any, ...], dict[str, Any]]:
    """Replace callables that the frame hook does not intercept by ``Route`` objects."""
    for position in taken.positions:
        if position < len(args) and _needs_route(args[position]):
            args = (*args[:position], Route(trace.calls, args[position]), *args[position + 1 :])
    for name in taken.keywords:
        if name in kwargs and _needs_route(kwargs[name]):
            kwargs = {**kwargs, name: Route(trace.calls, kwargs[name])}
    return args, kwargs


def _needs_route(fn: object) -> bool:
    if fn is None:
        return False
    inner = fn.__func__ if type(fn) is types.MethodType else fn
    if type(inner) is types.FunctionType:
        return not native.AVAILABLE
    return type(inner) is not types.MethodDescriptorType or inner.__objclass__ is not str


class Route:
    """A callable inside of a C object.

    When the C object leaves the trace, the original callable takes the place of the ``Route``.
    """

    __slots__ = ("calls", "fn")

    def __init__(self, calls: Calls, fn: object) -> None:
        self.calls = calls
        self.fn = fn

    def __call__(self, *args: object) -> Any:
        return self.calls.call_back(self.fn, args, {})
