"""Iterators that were begun outside, where C code takes items from them: it gets one that asks the trace for each item.

The real iterator must not be advanced while tracing, and C code would do so. What the C code makes and keeps
(``zip(begun, xs)``) holds the reader; when that leaves the graph the begun iterator itself stands there.
"""

from __future__ import annotations

import collections
import functools
import itertools
import operator
from typing import TYPE_CHECKING, Any, Final

if TYPE_CHECKING:
    from collections.abc import Callable

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


_ALL: Final = slice(None)
_FIRST: Final = slice(1)
_SECOND: Final = slice(1, 2)
_LATER: Final = slice(1, None)
_MAKING: Final = ("__new__", "__init__")
_FILLED: Final = (list, tuple, dict, set, frozenset, collections.deque, collections.OrderedDict)
_TABLE: tuple[tuple[slice, tuple[Callable[..., Any], ...]], ...] = (
    (_ALL, (zip, itertools.chain, itertools.product, itertools.zip_longest, itertools.compress)),
    (_FIRST, (list, tuple, set, frozenset, dict, collections.OrderedDict, collections.deque)),
    (_FIRST, (enumerate, sorted, sum, any, all, min, max, dict.fromkeys, operator.contains)),
    (_FIRST, (itertools.islice, itertools.cycle, itertools.accumulate, itertools.pairwise)),
    (_FIRST, (itertools.permutations, itertools.combinations, itertools.groupby)),
    (_SECOND, (filter, functools.reduce, itertools.starmap, itertools.filterfalse)),
    (_SECOND, (itertools.takewhile, itertools.dropwhile, list.extend, str.join)),
    (_SECOND, (collections.deque.extend, collections.deque.extendleft, dict.update)),
    (_SECOND, tuple(cls.__dict__[n] for cls in _FILLED for n in _MAKING if n in cls.__dict__)),
    (_SECOND, (vars(collections)["_count_elements"],)),
    (_LATER, (map, set.update, set.union, set.intersection, set.difference)),
)
TAKING: dict[int, slice] = {id(fn): where for where, fns in _TABLE for fn in fns}
"""Which arguments C functions do nothing with but take their items."""


def read(trace: Trace, where: slice, args: tuple[Any, ...]) -> tuple[Any, ...]:
    """The arguments, with readers in place of begun iterators that can be read."""
    consumed = trace.objects.iterators
    if not consumed or not any(arg in consumed for arg in args[where]):
        return args
    taken = [Reader(trace.calls, arg) if arg in consumed else arg for arg in args[where]]
    start, stop, _ = where.indices(len(args))
    return *args[:start], *taken, *args[stop:]
