"""Partially consumed iterators as arguments of C code.

C code would advance the real iterator while tracing. C code therefore gets a ``Reader``, which asks the trace
for each item. Objects that the C code creates (``zip(consumed, xs)``) hold the reader. When such an object
leaves the graph, the iterator takes the place of the reader.
"""

from __future__ import annotations

from typing import Any

from fxstack_capture.trace.state import Calls, Trace


class Reader:
    """An iterator inside of C code that reads a partially consumed iterator through the trace."""

    __slots__ = ("calls", "iterator")

    def __init__(self, calls: Calls, iterator: object) -> None:
        self.calls = calls
        self.iterator = iterator

    def __iter__(self) -> Reader:
        return self

    def __next__(self) -> Any:
        return self.calls.next(self.iterator)


def behind(iterator: object) -> Any:
    """The iterator that the program gave, if ``iterator`` is a reader of this iterator."""
    return iterator.iterator if type(iterator) is Reader else iterator


def read(trace: Trace, where: slice, args: tuple[Any, ...]) -> tuple[Any, ...]:
    """Replace partially consumed iterators among the arguments by readers, where the trace can read them."""
    consumed = trace.objects.iterators
    if not consumed or not any(id(arg) in consumed for arg in args[where]):
        return args
    taken = [Reader(trace.calls, arg) if id(arg) in consumed else arg for arg in args[where]]
    start, stop, _ = where.indices(len(args))
    return *args[:start], *taken, *args[stop:]
