"""Iterators of CPython's own that were begun outside: what they will give is read one by one, without taking it.

Which items come is guarded as far as they are asked for, and that there are no more when the end was reached; not
where the iterator stands. So the code behind a graph break in a loop is compiled once, not for each item. What was
taken is taken for real when the frame is left (``advances``), before anything else is written.

An iterator over others (``zip``, ``map``, ``filter``) asks those, and an ``enumerate`` counts. What they give is read
item by item (``DeferredTuple``), so that names that the program does not look at are not guarded.
"""

from __future__ import annotations

import gc
import itertools
import math
import operator
import warnings
from collections.abc import Callable, Iterator
from typing import Any, Final

from fxstack_capture import native
from fxstack_capture.breaks import graph_break
from fxstack_capture.guards.records import AllDistinct, Equals, LengthIs, TypeIs
from fxstack_capture.sources import Converted, Item, Source, Upcoming
from fxstack_capture.trace.records import DeferredLocal, DeferredTuple
from fxstack_capture.trace.state import Objects

# Limits: an iterator over a list or dictionary that the graph has changed ends the graph, and so does
# zip(strict=True). A generator that was made before a graph break is run beside the graphs.

_LENGTH_HINT: Any = operator.length_hint
_REFERENTS: Any = gc.get_referents


class Consumed:
    """One of them. ``taken`` of its items are gone in the trace and not through another iterator's real ``next``."""

    def __init__(self, objects: Objects, obj: Any, source: Source) -> None:
        self.objects = objects
        self.obj = obj
        self.source = source
        self.taken = 0
        self.ended = False

    def next(self) -> Any:
        """What comes next: ``DeferredLocal``, ``DeferredTuple`` or an object of the trace. Raises StopIteration, GraphBreak."""
        raise NotImplementedError

    def leave_to_other(self) -> None:
        """The item that was taken last will be taken by the iterator that asked for it. Raises GraphBreak."""
        raise self.refuse("an iterator over a function")

    def steps(self) -> int:
        """How often ``next`` is to be called for real."""
        return self.taken + self.ended

    def refuse(self, what: str) -> BaseException:
        return graph_break("unsupported-object", f"{what} that was begun outside of the graph")

    def guarded_end(self, count: int) -> StopIteration:
        """That nothing comes after ``count`` items."""
        if operator.length_hint(self.obj) != count:
            raise self.refuse("an iterator over a container that was changed")
        self.objects.trace.guard(Converted(self.source, _LENGTH_HINT), Equals(count))
        self.ended = True
        return StopIteration()


class _OfContainer(Consumed):
    """Of a list, a tuple, a range or a dictionary."""

    def __init__(self, objects: Objects, obj: Any, source: Source) -> None:
        super().__init__(objects, obj, source)
        self._place = 0

    def next(self) -> Any:
        if self.ended:
            raise StopIteration
        self._demand_container()
        try:
            value = native.upcoming(self.obj, self._place)
        except IndexError:
            raise self.guarded_end(self._place) from None
        source = Upcoming(self.source, self._place)
        # That there is one; the program may not look at it.
        self.objects.trace.guard(source, TypeIs(type(value)))
        self._place += 1
        self.taken += 1
        if type(self.obj) is _DICT_ITEMS:
            return DeferredTuple(tuple(DeferredLocal(part, Item(source, i)) for i, part in enumerate(value)))
        return DeferredLocal(value, source)

    def leave_to_other(self) -> None:
        self.taken -= 1

    def _demand_container(self) -> None:
        """What it goes over must be as it was: the items are read from there."""
        if type(self.obj) not in _OF_MUTABLE:
            return
        container = next(iter(gc.get_referents(self.obj)), None)
        if container is None:
            return
        where = Item(Converted(self.source, _REFERENTS), 0)
        if type(container) is list:
            proxy = self.objects.append_only.enter(container, where)
            changed = self._is_changed_list(proxy)
        elif type(container) is dict:
            changed = self.objects.dicts[id(self.objects.enter(container, where))].changed
        else:
            raise self.refuse(f"an iterator over a {type(container).__qualname__}")
        if changed:
            raise self.refuse("an iterator over a container that was changed")

    def _is_changed_list(self, proxy: Any) -> bool:
        if proxy in self.objects.append_only:
            return bool(proxy)
        held = self.objects.contents[id(proxy)]
        return len(held) != len(proxy) or any(map(operator.is_not, held, proxy))


class _Composed(Consumed):
    """What has no state but that of the iterators that it asks, and a function."""

    def __init__(self, objects: Objects, obj: Any, source: Source) -> None:
        super().__init__(objects, obj, source)
        by: Any = type(obj).__reduce__
        reduced = Converted(source, by)
        parts = obj.__reduce__()
        if len(parts) != 2:
            raise self.refuse(f"a {type(obj).__name__} with more arguments")
        self._parts = [(part, Item(Item(reduced, 1), i)) for i, part in enumerate(parts[1])]

    def function_and_iterators(self) -> tuple[Any, ...]:
        """Of a ``map`` or ``filter``: what it calls, and the iterators that it asks."""
        self.asked(1)
        return self.objects.enter(*self._parts[0]), *(part for part, _ in self._parts[1:])

    def asked(self, first: int = 0) -> list[Consumed]:
        """The iterators that it asks, in order."""
        return [self.objects.iterators.enter(*part) for part in self._parts[first:]]


class _Zip(_Composed):
    def next(self) -> Any:
        asked = self.asked()
        if not asked:
            raise StopIteration
        return DeferredTuple(tuple([iterator.next() for iterator in asked]))

    def leave_to_other(self) -> None:
        for iterator in self.asked():
            iterator.leave_to_other()


class _Map(_Composed):
    def next(self) -> Any:
        objects = self.objects
        fn = objects.enter(*self._parts[0])
        items = tuple([objects.iterators.entered(i.next()) for i in self.asked(1)])
        return objects.trace.calls.call(fn, items, {})


class _Filter(_Composed):
    def next(self) -> Any:
        objects = self.objects
        fn = objects.enter(*self._parts[0])
        (iterator,) = self.asked(1)
        while True:
            item = objects.iterators.entered(iterator.next())
            passed = item if fn in (None, bool) else objects.trace.calls.call(fn, (item,), {})
            if objects.trace.calls.truth(passed):
                return item


class _Enumerate(_Composed):
    """Its number is its own, so it is advanced for real, and with it what it asks."""

    def next(self) -> Any:
        iterator = self.objects.iterators.enter(*self._parts[0])
        try:
            item = iterator.next()
        except StopIteration:
            self.ended = True
            raise
        iterator.leave_to_other()
        number = DeferredLocal(*self._parts[1])
        place, self.taken = self.taken, self.taken + 1
        return DeferredTuple((self.objects.iterators.entered(number) + place if place else number, item))

    def leave_to_other(self) -> None:
        raise self.refuse("an enumerate inside of another iterator")


class _OfArguments(Consumed):
    """What is made again of the arguments that it reduces to, looked at when the first item is asked for."""

    def __init__(self, objects: Objects, obj: Any, source: Source) -> None:
        super().__init__(objects, obj, source)
        self._place = 0
        self._arguments: list[Any] | None = None

    def arguments(self) -> list[Any]:
        """What the iterator would be made of now."""
        if self._arguments is None:
            self._arguments = self._entered()
        return self._arguments

    def _entered(self) -> list[Any]:
        where, parts = self._where(), self.obj.__reduce__()[1]
        self.objects.trace.guard(where, LengthIs(len(parts)))
        self.demand(parts)
        return [self.objects.enter(part, Item(where, i)) for i, part in enumerate(parts)]

    def _where(self) -> Source:
        by: Any = type(self.obj).__reduce__
        return Item(Converted(self.source, by), 1)

    def demand(self, parts: tuple[Any, ...]) -> None:
        """What has to be so, before they enter. Raises GraphBreak."""

    def leave_to_other(self) -> None:
        self.taken -= 1

    def _take(self) -> int:
        """The number of the item that is taken."""
        self.taken += 1
        self._place += 1
        return self._place - 1


class _Count(_OfArguments):
    """``itertools.count`` of integers: where it stands is a number of the program's."""

    def demand(self, parts: tuple[Any, ...]) -> None:
        if any(type(part) is not int for part in parts):  # floats lose digits by being added up
            raise self.refuse("a count of something else than integers")

    def next(self) -> Any:
        first, *step = self.arguments()
        place = self._take()
        return first + place * (step[0] if step else 1) if place else first


class _Repeat(_OfArguments):
    """``itertools.repeat``; how often still is guarded."""

    def demand(self, parts: tuple[Any, ...]) -> None:
        self._left = parts[1] if len(parts) > 1 else math.inf
        if len(parts) > 1:
            self.objects.trace.guard(Item(self._where(), 1), Equals(parts[1]))

    def next(self) -> Any:
        item = self.arguments()[0]
        if self._place >= self._left:
            self.ended = True
            raise StopIteration
        self._take()
        return item


def _is_quiet(iterator: Any) -> bool:
    """Whether it says what it would be made of; from 3.12 on that warns, and will be removed."""
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

_KINDS: dict[type, Callable[[Objects, Any, Source], Consumed]] = {
    **dict.fromkeys((*_LISTS, *_DICTS, type(iter(())), type(iter(range(0)))), _OfContainer),
    **({itertools.count: _Count, itertools.repeat: _Repeat} if _is_quiet(itertools.count()) else {}),
    zip: _Zip,
    map: _Map,
    filter: _Filter,
    enumerate: _Enumerate,
}


class ConsumedIterators:
    """Those of one trace, by the id of the iterator, which stands for itself."""

    def __init__(self, objects: Objects) -> None:
        self._objects = objects
        self._consumed: dict[int, Consumed] = {}

    def __contains__(self, obj: object) -> bool:
        return id(obj) in self._consumed

    def __len__(self) -> int:
        return len(self._consumed)

    def add(self, obj: object, source: Source) -> None:
        """``obj`` enters as what it is; if it is of a known kind, it can be read."""
        kind = _KINDS.get(type(obj))
        if kind is not None and native.AVAILABLE:
            self._consumed[id(obj)] = kind(self._objects, obj, source)

    def enter(self, obj: Any, source: Source) -> Consumed:
        """An iterator that another one asks. Raises GraphBreak if it cannot be read."""
        self._objects.enter(obj, source)
        if obj not in self:
            raise graph_break("unsupported-object", f"a begun {type(obj).__qualname__}")
        return self._consumed[id(obj)]

    def next(self, obj: object) -> Any:
        """The next item, not entered. Raises StopIteration, GraphBreak."""
        return self._consumed[id(obj)].next()

    def asked_by(self, obj: object) -> tuple[Any, ...]:
        """What a ``map`` or ``filter`` calls, and the iterators that it asks. Raises GraphBreak."""
        found = self._consumed[id(obj)]
        assert isinstance(found, _Composed)
        return found.function_and_iterators()

    def entered(self, item: Any) -> Any:
        """An item as an object of the trace."""
        if type(item) is DeferredLocal:
            return self._objects.enter(item.value, item.source)
        if type(item) is DeferredTuple:
            return tuple([self.entered(part) for part in item.parts])
        return item

    def advances(self) -> Iterator[tuple[Source, int]]:
        """What is to be taken for real: an ``enumerate`` first, which takes from others what they do not count."""
        for counts in (True, False):
            for consumed in self._consumed.values():
                if isinstance(consumed, _Enumerate) is counts and consumed.steps():
                    yield consumed.source, consumed.steps()

    def close(self) -> None:
        """Different iterators of one kind stay different where any has been advanced."""
        alike: dict[type, list[Consumed]] = {}
        for consumed in self._consumed.values():
            alike.setdefault(type(consumed.obj), []).append(consumed)
        for first, *others in alike.values():
            if others:
                sources = tuple(consumed.source for consumed in others)
                self._objects.trace.guard(first.source, AllDistinct(sources))
