"""Partially consumed iterators of CPython's own types.

The trace reads the next items without advancing the iterator. The guards cover the items that the trace has
read, and the end if the trace has reached it. The guards do not cover the position of the iterator.
Therefore, after a graph break in a loop, the rest of the loop is compiled once and not once for each item.
When the frame is left, the replacement code advances the real iterator before any other side effect
(``trace.effects.Advance``).

The only state of a ``zip``, ``map`` or ``filter`` is the iterators that it reads. An ``enumerate`` has a
counter in addition. The items of ``zip`` and ``enumerate`` are tuples that are read part by part
(``DeferredTuple``), so a part that the program does not read is not guarded.
"""

from __future__ import annotations

import gc
import itertools
import math
import operator
import warnings
from collections.abc import Callable
from typing import Any, Final

from fxstack_capture import native
from fxstack_capture.breaks import graph_break
from fxstack_capture.guards.records import AllDistinct, Equals, LengthIs, TypeIs
from fxstack_capture.objects.kinds import append_only_lists
from fxstack_capture.sources import Converted, Item, Source, Upcoming
from fxstack_capture.trace.object_records import ConsumedIterator
from fxstack_capture.trace.records import DeferredLocal, DeferredTuple
from fxstack_capture.trace.state import Objects

# Limits: an iterator over a list or dictionary that the graph has changed breaks the graph. zip(strict=True)
# breaks the graph. A generator that was made before a graph break runs in plain Python, between the graphs.

_LENGTH_HINT: Any = operator.length_hint
_REFERENTS: Any = gc.get_referents


class Consumed(ConsumedIterator):
    """A partially consumed iterator that the trace can read. Each subclass reads one kind of iterator."""

    def __init__(self, objects: Objects, obj: Any, source: Source) -> None:
        """``obj`` is the real iterator, which the trace never advances."""
        super().__init__(obj, source)
        self.objects = objects

    def leave_to_other(self) -> None:
        """Do not count the last item that ``next`` returned.

        ``_Enumerate`` calls this method of the iterator that it reads, because the real ``enumerate`` takes
        the item. Raises GraphBreak if an iterator of this kind cannot be read by another iterator.
        """
        raise self.refuse("an iterator over a function")

    def refuse(self, description: str) -> BaseException:
        """Return the GraphBreak for an iterator that the trace cannot read. The caller raises it.

        ``description`` names the iterator in the message, for example ``"an iterator over a changed
        container"``.
        """
        return graph_break(
            "unsupported-object", f"{description} that was partially consumed outside of the graph"
        )

    def guarded_end(self, count: int) -> StopIteration:
        """Guard that no item follows after ``count`` items. Return the StopIteration that the caller raises.

        Raises GraphBreak if the container has changed since the iterator was made.
        """
        # If the container has changed, the length hint does not fit: for a list it counts new items, and for
        # a dictionary of another size it is 0.
        if operator.length_hint(self.obj) != count:
            raise self.refuse("an iterator over a changed container")
        self.objects.trace.guard(Converted(self.source, _LENGTH_HINT), Equals(count))
        self.ended = True
        return StopIteration()


class _OfContainer(Consumed):
    """An iterator over a list, a tuple, a range or a dictionary."""

    def __init__(self, objects: Objects, obj: Any, source: Source) -> None:
        super().__init__(objects, obj, source)
        self._position = 0
        """Number of items that the trace has read."""

    def next(self) -> Any:
        """Return the next item, deferred: a ``DeferredLocal``, or a ``DeferredTuple`` for ``dict.items()``.

        The load of the item wraps it. Until then, the guards demand only the class of the item.
        """
        if self.ended:
            raise StopIteration
        self._demand_container()
        try:
            # Peek instead of calling ``next``: if the trace fails, plain Python runs the frame
            # with the same iterator.
            value = native.upcoming(self.obj, self._position)
        except IndexError:
            raise self.guarded_end(self._position) from None
        source = Upcoming(self.source, self._position)
        # Guard that an item exists. The program may never read the item itself.
        self.objects.trace.guard(source, TypeIs(type(value)))
        self._position += 1
        self.taken += 1
        if type(self.obj) is _DICT_ITEMS:
            return DeferredTuple(tuple(DeferredLocal(part, Item(source, i)) for i, part in enumerate(value)))
        return DeferredLocal(value, source)

    def leave_to_other(self) -> None:
        self.taken -= 1

    def _demand_container(self) -> None:
        """Raise GraphBreak if the program has changed the container during the trace.

        The items are read from the real container, which does not have these changes.
        """
        if type(self.obj) not in _OF_MUTABLE:
            return
        container = next(iter(gc.get_referents(self.obj)), None)
        if container is None:
            return
        container_source = Item(Converted(self.source, _REFERENTS), 0)
        if type(container) is list:
            proxy = append_only_lists.enter(self.objects, container, container_source)
            changed = self._is_changed_list(proxy)
        elif type(container) is dict:
            changed = self.objects.dicts[id(self.objects.enter(container, container_source))].changed
        else:
            raise self.refuse(f"an iterator over a {type(container).__qualname__}")
        if changed:
            raise self.refuse("an iterator over a changed container")

    def _is_changed_list(self, proxy: Any) -> bool:
        """Whether the program has changed the items of a list during the trace. ``proxy`` is the proxy of the
        list.
        """
        if id(proxy) in self.objects.append_only:
            return bool(proxy)
        originals = self.objects.contents[id(proxy)]
        return len(originals) != len(proxy) or any(map(operator.is_not, originals, proxy))


class _Composed(Consumed):
    """An iterator whose only state is a function and the iterators that it reads."""

    def __init__(self, objects: Objects, obj: Any, source: Source) -> None:
        super().__init__(objects, obj, source)
        by: Any = type(obj).__reduce__
        reduced = Converted(source, by)
        parts = obj.__reduce__()
        if len(parts) != 2:
            raise self.refuse(f"a {type(obj).__name__} with more arguments")
        self._parts = [(part, Item(Item(reduced, 1), i)) for i, part in enumerate(parts[1])]
        """Pairs (argument, source), one for each argument in ``__reduce__``."""

    def function_and_iterators(self) -> tuple[Any, ...]:
        """For a ``map`` or ``filter``: return the function, as an object of the trace, and the real iterators
        that it reads.
        """
        self.inner_iterators(1)
        return self.objects.enter(*self._parts[0]), *(part for part, _ in self._parts[1:])

    def inner_iterators(self, first: int = 0) -> list[Consumed]:
        """Return the iterators that this iterator reads, in order.

        ``first`` is the number of the first part to return. For a ``map`` or ``filter`` it is 1, because part
        0 is the function.
        """
        return [enter(self.objects, *part) for part in self._parts[first:]]


class _Zip(_Composed):
    """A ``zip``. It has no state of its own, so its inner iterators count the items."""

    def next(self) -> Any:
        """Return a tuple of the next item of each inner iterator. The items are deferred."""
        iterators = self.inner_iterators()
        if not iterators:
            raise StopIteration
        return DeferredTuple(tuple([iterator.next() for iterator in iterators]))

    def leave_to_other(self) -> None:
        for iterator in self.inner_iterators():
            iterator.leave_to_other()


class _Map(_Composed):
    """A ``map``. The trace calls its function on the items that its iterators return."""

    def next(self) -> Any:
        """Return the result of the function for the next item of each inner iterator."""
        objects = self.objects
        fn = objects.enter(*self._parts[0])
        items = tuple([entered(objects, i.next()) for i in self.inner_iterators(1)])
        return objects.trace.calls.call(fn, items, {})


class _Filter(_Composed):
    """A ``filter``. The trace calls its function on each item until the function accepts an item."""

    def next(self) -> Any:
        """Return the next item that the function accepts."""
        objects = self.objects
        fn = objects.enter(*self._parts[0])
        (iterator,) = self.inner_iterators(1)
        while True:
            item = entered(objects, iterator.next())
            accepted = item if fn in (None, bool) else objects.trace.calls.call(fn, (item,), {})
            if objects.trace.calls.truth(accepted):
                return item


class _Enumerate(_Composed):
    """An ``enumerate``. Its own state is the counter.

    The replacement code advances the real ``enumerate``, because only that advances the counter. The
    ``enumerate`` then advances the iterator that it reads.
    """

    counts_for_others = True

    def next(self) -> Any:
        """Return a tuple of the number and the next item. The number of the first item is deferred."""
        iterator = enter(self.objects, *self._parts[0])
        try:
            item = iterator.next()
        except StopIteration:
            self.ended = True
            raise
        iterator.leave_to_other()
        # Part 1 of ``__reduce__`` is the number that the real ``enumerate`` gives to its next item.
        number = DeferredLocal(*self._parts[1])
        index, self.taken = self.taken, self.taken + 1
        return DeferredTuple((entered(self.objects, number) + index if index else number, item))

    def leave_to_other(self) -> None:
        raise self.refuse("an enumerate inside of another iterator")


class _OfArguments(Consumed):
    """An iterator that can be made a second time from the arguments in its ``__reduce__``.

    The arguments are wrapped when the program asks for the first item.
    """

    def __init__(self, objects: Objects, obj: Any, source: Source) -> None:
        super().__init__(objects, obj, source)
        self._position = 0
        """Number of items that the trace has taken."""
        self._arguments: list[Any] | None = None
        """The wrapped arguments, or None before the first item."""

    def arguments(self) -> list[Any]:
        """Return the arguments, as objects of the trace, that make an equal iterator.

        The iterator equals the real one at the start of the frame.
        """
        if self._arguments is None:
            self._arguments = self._enter_arguments()
        return self._arguments

    def _enter_arguments(self) -> list[Any]:
        """Wrap the arguments in ``__reduce__``, and guard their number."""
        source, arguments = self._arguments_source(), self.obj.__reduce__()[1]
        self.objects.trace.guard(source, LengthIs(len(arguments)))
        self.demand(arguments)
        return [self.objects.enter(part, Item(source, i)) for i, part in enumerate(arguments)]

    def _arguments_source(self) -> Source:
        """Return the source of the arguments: item 1 of the result of ``__reduce__``."""
        by: Any = type(self.obj).__reduce__
        return Item(Converted(self.source, by), 1)

    def demand(self, parts: tuple[Any, ...]) -> None:
        """Check the arguments ``parts`` before they are wrapped.

        Subclasses raise GraphBreak for unsupported arguments, or add guards.
        """

    def leave_to_other(self) -> None:
        self.taken -= 1

    def _take(self) -> int:
        """Count one more item and return its index."""
        self.taken += 1
        self._position += 1
        return self._position - 1


class _Count(_OfArguments):
    """An ``itertools.count`` of integers. The next number is an ordinary number of the program, which may be
    dynamic.
    """

    def demand(self, parts: tuple[Any, ...]) -> None:
        """Raise GraphBreak unless all arguments are integers."""
        # A count of floats adds the step repeatedly and accumulates rounding errors. A multiplication would
        # not.
        if any(type(part) is not int for part in parts):
            raise self.refuse("an itertools.count whose arguments are not integers")

    def next(self) -> Any:
        """Return the next number, computed from the first number and the step."""
        first, *step = self.arguments()
        index = self._take()
        return first + index * (step[0] if step else 1) if index else first


class _Repeat(_OfArguments):
    """An ``itertools.repeat``. The number of remaining items is guarded."""

    def demand(self, parts: tuple[Any, ...]) -> None:
        """Read the number of remaining items and guard it. The number is infinite if the iterator has no
        limit.
        """
        self._remaining = parts[1] if len(parts) > 1 else math.inf
        if len(parts) > 1:
            self.objects.trace.guard(Item(self._arguments_source(), 1), Equals(parts[1]))

    def next(self) -> Any:
        """Return the repeated object, or raise StopIteration at the limit."""
        item = self.arguments()[0]
        if self._position >= self._remaining:
            self.ended = True
            raise StopIteration
        self._take()
        return item


def _is_quiet(iterator: Any) -> bool:
    """Whether an iterator of ``itertools`` implements ``__reduce__`` without a warning.

    Evaluated once, at import. Later versions of Python may remove the method. The trace reads these iterators
    only if the method exists.
    """
    # Python 3.12 deprecates the copying and pickling of itertools objects.
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        try:
            return bool(iterator.__reduce__())
        except (DeprecationWarning, AttributeError, TypeError):
            return False


_LISTS: Final[tuple[type, ...]] = (type(iter([])), type(reversed([])))
_DICT_ITEMS: Final[type] = type(iter({}.items()))
_DICTS: Final[tuple[type, ...]] = (type(iter({})), type(iter({}.values())), _DICT_ITEMS)
_OF_MUTABLE: Final = frozenset((*_LISTS, *_DICTS))
"""Types of iterators over containers that the program may change while it iterates."""

_KINDS: dict[type, Callable[[Objects, Any, Source], Consumed]] = {
    **dict.fromkeys((*_LISTS, *_DICTS, type(iter(())), type(iter(range(0)))), _OfContainer),
    **({itertools.count: _Count, itertools.repeat: _Repeat} if _is_quiet(itertools.count()) else {}),
    zip: _Zip,
    map: _Map,
    filter: _Filter,
    enumerate: _Enumerate,
}
"""Maps each type of iterator that the trace can read to its class in this module. Iterators of other types
break the graph.
"""


def add(objects: Objects, obj: object, source: Source) -> None:
    """Make ``obj``, which is its own proxy, readable if it is an iterator of a known type.

    Called when an iterator from outside is wrapped.
    """
    kind = _KINDS.get(type(obj))
    if kind is not None and native.AVAILABLE:
        objects.iterators[id(obj)] = kind(objects, obj, source)


def enter(objects: Objects, obj: Any, source: Source) -> Consumed:
    """Wrap an iterator that another iterator reads, and return its ``Consumed``.

    Raises GraphBreak if the trace cannot read the iterator.
    """
    objects.enter(obj, source)
    consumed = objects.iterators.get(id(obj))
    if consumed is None:
        raise graph_break("unsupported-object", f"a partially consumed {type(obj).__qualname__}")
    assert isinstance(consumed, Consumed)
    return consumed


def read_by(objects: Objects, obj: object) -> tuple[Any, ...]:
    """Return the function of ``obj``, a ``map`` or ``filter``, and the real iterators that ``obj`` reads.

    Called before a polyfill, a loop in Python, replaces the C code of ``obj``. Raises GraphBreak if ``obj``
    cannot be read.
    """
    consumed = objects.iterators[id(obj)]
    assert isinstance(consumed, _Composed)
    return consumed.function_and_iterators()


def entered(objects: Objects, item: Any) -> Any:
    """Return an item that ``Consumed.next`` has returned, as an object of the trace. A deferred item is
    wrapped.
    """
    if type(item) is DeferredLocal:
        return objects.enter(item.value, item.source)
    if type(item) is DeferredTuple:
        return tuple([entered(objects, part) for part in item.parts])
    return item


def close(objects: Objects) -> None:
    """Guard that different iterators of one type are different objects. Called at the end of the trace.

    If one iterator were passed twice, it would be advanced twice.
    """
    alike: dict[type, list[Source]] = {}
    for consumed in objects.iterators.values():
        alike.setdefault(type(consumed.obj), []).append(consumed.source)
    for first, *others in alike.values():
        if others:
            objects.trace.guard(first, AllDistinct(tuple(others)))
