"""Polyfills: Python functions that do the work of C code that calls functions of the program.

No resume function can continue a frame below C code. If a graph broke below C code, the next trace interprets
these functions in place of the C code (``calls.polyfills``). Every frame down to the break is then a Python
frame. The frames of polyfills are not frames of the program: tracebacks and stacks do not show them, and the
operation that breaks the graph does not see them.

Each function makes the same calls as CPython in the same order (``Objects/abstract.c``, ``typeobject.c``,
``Python/bltinmodule.c``).
"""

from __future__ import annotations

import functools
import operator
from collections.abc import Callable, Iterable, Iterator
from typing import Any

# Limits: if the code after such a graph break runs in plain Python, sys._getframe sees a frame of this
# module.


class End:
    """Marks an exhausted iterator in ``next_or_end``. The marker is the class itself."""


# --- operators -----------------------------------------------------------------------------------


def first_answer(fn: Callable[..., Any], args: tuple[Any, ...], rest: Any, others: Any) -> Any:
    """Return ``fn(*args)``. If the result is NotImplemented, return ``rest(*others)``, the reflected
    operator.
    """
    result = fn(*args)
    if result is NotImplemented:
        return rest(*others)
    return result


def unequal(equal: Any, left: object, right: object) -> Any:
    """Do what ``object.__ne__`` does: negate the result of ``equal``, the ``__eq__`` of the class."""
    result = equal(left, right)
    if result is NotImplemented:
        return result
    return not result


def raise_type_error(text: str) -> None:
    """Raise the TypeError for operands whose classes do not implement the operator."""
    raise TypeError(text)


def pass_through(value: object) -> Any:
    """Return the argument. ``calls`` requests this function if it knows the result without a call."""
    return value


def as_bool(fn: Callable[..., Any], args: tuple[Any, ...]) -> bool:
    """Call ``fn`` and convert the result to bool, for a comparison in a condition."""
    return bool(fn(*args))


def negate(fn: Callable[..., Any], args: tuple[Any, ...]) -> bool:
    """Call ``fn`` and negate the result, for ``not`` and ``not in``."""
    return not fn(*args)


def contains_by_iteration(container: Any, item: object) -> bool:
    """Implement ``in`` for a container without ``__contains__``."""
    for other in container:  # noqa: SIM110 - any() is C code, too
        # CPython compares identity before it calls ``__eq__``.
        if other is item or other == item:
            return True
    return False


def discard_result(fn: Callable[..., Any], args: tuple[Any, ...]) -> None:
    """Call a function and discard its result."""
    fn(*args)


# --- results that CPython checks -----------------------------------------------------------------


def truth(method: Callable[..., Any], value: object) -> bool:
    """Return the result of ``__bool__``. Raise CPython's TypeError if it is not a bool."""
    result = method(value)
    if type(result) is not bool:
        raise TypeError(f"__bool__ should return bool, returned {type(result).__name__}")
    return result


def length(method: Any, value: Any) -> int:
    """Return the result of ``__len__`` as an int. Raise CPython's ValueError if it is negative."""
    result = method(value)
    if type(result) is not int:
        result = int(operator.index(result))
    if result < 0:
        raise ValueError("__len__() should return >= 0")
    return result


def has_length(method: object, value: object) -> bool:
    """Return the truth of ``value``. Its class defines ``__len__`` (``method``) but no ``__bool__``."""
    return length(method, value) != 0


def text(name: str, method: Callable[..., Any], value: object) -> str:
    """Return the result of ``__str__`` or ``__repr__`` (``name``).

    Raises CPython's TypeError if the result is not a string.
    """
    result = method(value)
    if not isinstance(result, str):
        raise TypeError(f"{name} returned non-string (type {type(result).__name__})")
    return result


def format_value(method: Callable[..., Any], value: object, spec: str) -> str:
    """Return the result of ``__format__``. Raise CPython's TypeError if it is not a string."""
    result = method(value, spec)
    if not isinstance(result, str):
        raise TypeError(f"__format__ must return a str, not {type(result).__name__}")
    return result


# --- attributes ----------------------------------------------------------------------------------


def attribute(
    fn: Callable[..., Any], args: tuple[Any, ...], hook: Callable[..., Any], obj: object, name: str
) -> Any:
    """Return ``fn(*args)``. If it raises AttributeError, return ``hook(obj, name)`` (``__getattr__``)."""
    try:
        return fn(*args)
    except AttributeError:
        # Call the hook after the ``except`` block, because CPython clears the AttributeError before it calls
        # ``__getattr__``.
        pass
    return hook(obj, name)


def get_cached_property(fn: Callable[..., Any], obj: object, name: str) -> Any:
    """Do what ``functools.cached_property.__get__`` does."""
    value = fn(obj)
    obj.__dict__[name] = value
    return value


def attribute_or(obj: object, name: str, default: object) -> Any:
    """Return ``getattr(obj, name, default)``."""
    try:
        return getattr(obj, name)
    except AttributeError:
        pass
    return default


def has_attribute(obj: object, name: str) -> bool:
    """Implement ``hasattr``."""
    try:
        getattr(obj, name)
    except AttributeError:
        return False
    return True


def construct(cls: type, new: Callable[..., Any], args: tuple[Any, ...], keywords: dict[str, Any]) -> Any:
    """Do what ``type.__call__`` does for a class with a ``__new__`` of the program."""
    instance = new(cls, *args, **keywords)
    if not isinstance(instance, cls):
        return instance
    result = type(instance).__init__(instance, *args, **keywords)
    if result is not None:
        raise TypeError(f"__init__() should return None, not '{type(result).__name__}'")
    return instance


# --- iteration -----------------------------------------------------------------------------------


def iterator_of(method: Callable[..., Any], value: object) -> Any:
    """Return the result of ``__iter__``. Raise CPython's TypeError if it is not an iterator."""
    result = method(value)
    if not hasattr(type(result), "__next__"):
        raise TypeError(f"iter() returned non-iterator of type '{type(result).__name__}'")
    return result


def next_or_end(fn: object, args: object) -> Any:
    """Return the next item or ``End``. A ``for`` loop then sees the end without an exception."""
    return next_or(fn, args, End)


def next_or(fn: Any, args: Any, default: Any) -> Any:
    """Implement ``next(iterator, default)``."""
    try:
        return fn(*args)
    except StopIteration:
        return default


def next_of_map(fn: Callable[..., Any], *iterators: Iterator[Any]) -> Any:
    """Return the next item of ``map``."""
    return fn(*[next(iterator) for iterator in iterators])


def next_of_filter(fn: Callable[..., Any], iterator: Iterator[Any]) -> Any:
    """Return the next item of ``filter`` that passes the predicate."""
    while True:
        item = next(iterator)
        if item if fn is None or fn is bool else fn(item):
            return item


def items_of(iterable: Iterable[Any]) -> list[Any]:
    """Implement ``list(iterable)``."""
    items = []
    for item in iterable:
        items.append(item)  # noqa: PERF402 - list() is what this stands for
    return items


def tuple_of(iterable: Iterable[Any]) -> tuple[Any, ...]:
    """Implement ``tuple(iterable)``."""
    return tuple(items_of(iterable))


def extend(items: list[Any], iterable: Iterable[Any]) -> None:
    """Implement ``list.extend``."""
    for item in iterable:
        items.append(item)  # noqa: PERF402 - list.extend is what this stands for


def any_of(iterable: Iterable[Any]) -> bool:
    """Implement ``any``."""
    for item in iterable:  # noqa: SIM110
        if item:
            return True
    return False


def all_of(iterable: Iterable[Any]) -> bool:
    """Implement ``all``."""
    for item in iterable:  # noqa: SIM110
        if not item:
            return False
    return True


def sum_of(iterable: Iterable[Any], start: Any = 0) -> Any:
    """Do what the builtin ``sum`` does."""
    total = sum((), start)
    # CPython adds the leading numbers in a fast path that compensates the rounding of floats. Therefore the
    # real ``sum`` adds them here.
    numbers: list[Any] | None = []
    for item in iterable:
        if numbers is not None and type(item) in (int, float, bool):
            numbers.append(item)
            continue
        if numbers is not None:
            total, numbers = sum(numbers, total), None
        total = total + item
    return total if numbers is None else sum(numbers, total)


def sorted_items(iterable: Iterable[Any], key: Any, reverse: Any) -> list[Any]:
    """Do what ``sorted`` does."""
    items = items_of(iterable)
    if key is None:
        return sorted(items, reverse=reverse)
    # Call ``key`` in this loop and not inside of ``sorted``, so that the graph can break inside of ``key``.
    keys = [key(item) for item in items]
    order = sorted(range(len(items)), key=keys.__getitem__, reverse=reverse)
    return [items[i] for i in order]


def extremum(
    fn: Callable[..., Any], better: Callable[[Any, Any], Any], items: tuple[Any, ...], key: Any, empty: Any
) -> Any:
    """Do what ``min`` and ``max`` do. ``empty`` has the keyword ``default``, if the program passed it."""
    iterator = iter(items)
    best_item = next(iterator, End)
    if best_item is End:
        return fn((), **empty)
    best = best_item if key is None else key(best_item)
    for item in iterator:
        value = item if key is None else key(item)
        if better(value, best):
            best_item, best = item, value
    return best_item


def fold_extremum(fn: Callable[..., Any], items: Iterable[Any], empty: dict[str, Any]) -> Any:
    """Call ``min`` or ``max`` for two items at a time. ``empty`` is the argument of ``extremum``."""
    iterator = iter(items)
    result = next(iterator, End)
    if result is End:
        return fn((), **empty)
    for item in iterator:
        result = fn(result, item)
    return result


def reduce_items(fn: Callable[..., Any], iterable: Iterable[Any], *initial: Any) -> Any:
    """Do what ``functools.reduce`` does."""
    iterator = iter(iterable)
    result = initial[0] if initial else next(iterator, End)
    if result is End:
        return functools.reduce(fn, ())
    for item in iterator:
        result = fn(result, item)
    return result
