"""Pass callables and partially consumed iterators of the program to C code that calls back into the trace.

The frame hook intercepts only Python functions. The program may give builtins, classes, ``attrgetter`` and
partial objects to ``map`` or as ``key=``. ``Route`` objects replace them, and ask the dispatcher to make the
call.

While tracing, C code may not advance a real iterator. It gets a ``Reader`` instead, which asks the trace for
each item. Objects that the C code creates (``zip(consumed, xs)``) contain the reader. When such an object
leaves the graph, the iterator takes the place of the reader.
"""

from __future__ import annotations

import types
from typing import Any

from fxstack_capture import native
from fxstack_capture.calls.c_functions import Taken
from fxstack_capture.trace.state import Args, Calls, Kwargs, Trace


def with_routes(
    trace: Trace, arguments: Taken, args: Args, kwargs: Kwargs
) -> tuple[tuple[Any, ...], dict[str, Any]]:
    """Return the arguments, with ``Route`` objects in place of callables that the frame hook does not
    intercept.

    ``arguments`` says which arguments are callables. ``native_run.run`` calls this before it runs C code.
    """
    for position in arguments.positions:
        if position < len(args) and _needs_route(args[position]):
            args = (*args[:position], Route(trace.calls, args[position]), *args[position + 1 :])
    for name in arguments.keywords:
        if name in kwargs and _needs_route(kwargs[name]):
            kwargs = {**kwargs, name: Route(trace.calls, kwargs[name])}
    return args, kwargs


def _needs_route(fn: object) -> bool:
    """Whether ``fn`` starts no Python frame that the hook intercepts when C code calls it."""
    if fn is None:
        return False
    inner = fn.__func__ if type(fn) is types.MethodType else fn
    if type(inner) is types.FunctionType:
        return not native.AVAILABLE
    return type(inner) is not types.MethodDescriptorType or inner.__objclass__ is not str


class Route:
    """A callable that C code gets in place of a callable of the program.

    When the object made by the C code leaves the trace, the original callable takes the place of the
    ``Route``.
    """

    __slots__ = ("calls", "fn")

    def __init__(self, calls: Calls, fn: object) -> None:
        self.calls = calls
        self.fn = fn

    def __call__(self, *args: object) -> Any:
        return self.calls.call_back(self.fn, args, {})


# --- iterators ------------------------------------------------------------------------------------------


class Reader:
    """An iterator that C code gets in place of a partially consumed iterator. It asks the trace for each item."""

    __slots__ = ("calls", "iterator")

    def __init__(self, calls: Calls, iterator: object) -> None:
        self.calls = calls
        self.iterator = iterator

    def __iter__(self) -> Reader:
        return self

    def __next__(self) -> Any:
        return self.calls.next(self.iterator)


def original_iterator(iterator: object) -> Any:
    """Return the iterator that a reader represents. If ``iterator`` is no reader, return it."""
    return iterator.iterator if type(iterator) is Reader else iterator


def with_readers(trace: Trace, iterated: slice, args: Args) -> tuple[Any, ...]:
    """Return the arguments, with readers in place of partially consumed iterators that the trace can read.

    ``iterated`` selects the arguments that the C code uses only by iterating over them.
    """
    consumed = trace.objects.iterators
    if not consumed or not any(id(arg) in consumed for arg in args[iterated]):
        return args
    arguments = [Reader(trace.calls, arg) if id(arg) in consumed else arg for arg in args[iterated]]
    start, stop, _ = iterated.indices(len(args))
    return *args[:start], *arguments, *args[stop:]
