"""Functions that C code calls back: routed through the dispatcher, whatever kind of callable they
are.

The frame hook catches Python functions only. A builtin, class, ``attrgetter`` or partial object
that is given to ``map`` or as a ``key=`` is therefore replaced by a function of ours, which asks
the dispatcher.
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
    """The arguments with callables replaced where that is needed."""
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
    """Stands for a callable inside of a C object; outside of the trace the callable itself does."""

    __slots__ = ("calls", "fn")

    def __init__(self, calls: Calls, fn: object) -> None:
        self.calls = calls
        self.fn = fn

    def __call__(self, *args: object) -> Any:
        return self.calls.call_back(self.fn, args, {})
