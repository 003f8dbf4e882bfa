"""Iterators that were begun outside, where C code takes items from them: it gets one that asks the trace for each item.

The real iterator must not be advanced while tracing, and C code would do so. What the C code makes and keeps
(``zip(begun, xs)``) holds the reader; when that leaves the graph the begun iterator itself stands there.
"""

from __future__ import annotations

from typing import Any

from fxstack_capture.trace.state import Calls, Trace


class Reader:
    """Stands for a begun iterator inside of C code."""

    __slots__ = ("calls", "iterator")

    def __init__(self, calls: Calls, iterator: object) -> None:
        self.calls = calls
        self.iterator = iterator

    def __iter__(self) -> Reader:
        return self

    def __next__(self) -> Any:
        return self.calls.next(self.iterator)


def behind(iterator: object) -> Any:
    """What C code holds, as the program gave it."""
    return iterator.iterator if type(iterator) is Reader else iterator


def read(trace: Trace, where: slice, args: tuple[Any, ...]) -> tuple[Any, ...]:
    """The arguments, with readers in place of begun iterators that can be read."""
    consumed = trace.objects.iterators
    if not consumed or not any(arg in consumed for arg in args[where]):
        return args
    taken = [Reader(trace.calls, arg) if arg in consumed else arg for arg in args[where]]
    start, stop, _ = where.indices(len(args))
    return *args[:start], *taken, *args[stop:]
