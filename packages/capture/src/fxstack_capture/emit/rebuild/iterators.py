"""Rules for iterators and other C objects, by the pickle protocol: callable, arguments, state."""

from __future__ import annotations

import ast
import functools
import gc
import types
import warnings
import weakref
from collections.abc import Callable, Iterator
from itertools import zip_longest
from typing import Any

from fxstack_capture.emit import runtime
from fxstack_capture.emit.builder import attribute, call
from fxstack_capture.emit.errors import CannotRebuildError
from fxstack_capture.emit.rebuild.containers import called, exprs
from fxstack_capture.emit.rebuild.rebuilder import Rebuilder, Rule
from fxstack_capture.objects.kinds.hidden_references import COMPARING_KEY
from fxstack_capture.trace.lazy_dict import ABSENT
from fxstack_capture.trace.registry import Registry

# Limits: in Python 3.14, iterators of itertools do not support the pickle protocol. If such an iterator would
# leave a graph, the graph ends, and plain Python makes the iterator between two graphs.

# The C classes of these modules reduce to their parts. Classes of other modules might reduce to names or run
# other code.
_MODULES = frozenset({"itertools", "decimal", "datetime", "_random", "operator", "_struct"})
_ITERATORS: tuple[type, ...] = (
    type(iter(())),
    type(iter(set())),
    type(iter(range(0))),
    type(iter(range(1 << 70, (1 << 70) + 1))),
    type(iter("")),
    type(iter(b"")),
    type(iter("\u00e4")),
    type(iter(bytearray())),
    type(iter(int, 1)),
    enumerate,
    zip,
    map,
    filter,
    reversed,
)


def reduce(rebuilder: Rebuilder, obj: object) -> ast.expr:
    """Rebuild an object by the pickle protocol: ``callable(*arguments)`` and ``__setstate__(state)``. Raises
    CannotRebuildError if the protocol gives anything else.
    """
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DeprecationWarning)  # itertools, since 3.12
        try:
            reduced = obj.__reduce_ex__(2)
        except TypeError as error:
            raise CannotRebuildError(f"an object of type {type(obj).__qualname__} ({error})") from None
    if not isinstance(reduced, tuple):
        raise CannotRebuildError(f"an object of type {type(obj).__qualname__}")
    function, arguments, state, *more = (*reduced, None, None)[:5]
    if any(part is not None for part in more):
        raise CannotRebuildError(f"an object of type {type(obj).__qualname__}")
    hint = type(obj).__name__
    make = rebuilder.constant(function, getattr(function, "__name__", hint))
    rebuilt = rebuilder.assign(call(make, *exprs(rebuilder, arguments)), hint)
    if state is not None:
        rebuilder.builder.run(call(attribute(rebuilt, "__setstate__"), rebuilder.expr(state)))
    return rebuilt


_OF_DICTS: dict[type, Callable[[dict[Any, Any]], Iterator[Any]]] = {
    type(iter({})): runtime.keys_of,
    type(iter({}.values())): runtime.values_of,
    type(iter({}.items())): runtime.items_of,
    type(reversed({})): runtime.last_keys_of,
    type(reversed({}.values())): runtime.last_values_of,
    type(reversed({}.items())): runtime.last_items_of,
}


def _has_other_keys(registry: Registry, mapping: dict[Any, Any]) -> bool:
    """Return whether the frame changes the keys of a dictionary from outside, or the order of the keys.

    An iterator over the dictionary would not find its position in the changed dictionary.
    """
    entry = registry.by_proxy.get(id(mapping))
    if entry is None:
        return False
    original = entry.original
    before = (
        known.proxy if (known := registry.by_original.get(id(key))) else key
        for key in dict.__iter__(original)
    )
    pairs = zip_longest(dict.__iter__(mapping), before, fillvalue=ABSENT)
    return any(a is not b and (type(a), a) != (type(b), b) for a, b in pairs)


def _of_dict(rebuilder: Rebuilder, obj: object) -> ast.expr:
    """Rebuild an iterator over a dictionary, at the same position of the rebuilt dictionary. Raises
    CannotRebuildError if its keys change.
    """
    # The iterator must see later writes to the dictionary, so the new iterator is over the dictionary itself.
    begin = _OF_DICTS[type(obj)]
    mapping = next((held for held in gc.get_referents(obj) if isinstance(held, dict)), None)
    consumed = 1  # more than the number of items: the iterator is exhausted
    iterated: ast.expr = ast.Dict([], [])
    if mapping is not None:
        try:
            left = len(obj.__reduce__()[1][0])
        except RuntimeError:
            raise CannotRebuildError("an iterator over a dictionary that the program has changed") from None
        if rebuilder.early or _has_other_keys(rebuilder.trace.objects.registry, mapping):
            raise CannotRebuildError("an iterator over a dictionary whose keys change")
        consumed = dict.__len__(mapping) - left
        iterated = rebuilder.expr(mapping)
    rebuilt = call(rebuilder.constant(begin, begin.__name__), iterated)
    forward = rebuilder.constant(runtime.advanced, "advanced")
    return rebuilder.assign(call(forward, rebuilt, ast.Constant(consumed)), type(obj).__name__)


_OF_LISTS: dict[type, Any] = {type(iter([])): list.__iter__, type(reversed([])): list.__reversed__}


def _of_list(rebuilder: Rebuilder, obj: Any) -> ast.expr:
    """Rebuild an iterator over a list, at the same position of the rebuilt list."""
    # The list may get its items after the iterator is made. The program may have appended some of these
    # items.
    _, (items, *_), *state = obj.__reduce__()
    if not state or not issubclass(type(items), list):
        return reduce(rebuilder, obj)
    begin = _OF_LISTS[type(obj)]
    stand = rebuilder.constant(runtime.standing_at, "standing_at")
    first = rebuilder.constant(begin, begin.__name__)
    rebuilt = call(stand, first, rebuilder.expr(items), ast.Constant(state[0]))
    return rebuilder.assign(rebuilt, type(obj).__name__)


def _weak_reference(rebuilder: Rebuilder, obj: weakref.ref[Any]) -> ast.expr:
    """Rebuild a weak reference to a live object.

    Raises CannotRebuildError if the weak reference is dead or has a callback.
    """
    target = obj()
    if target is None or obj.__callback__ is not None:
        raise CannotRebuildError("a weak reference that is dead or has a callback")
    return called(rebuilder, weakref.ref, rebuilder.expr(target), hint="ref")


def _comparing_key(rebuilder: Rebuilder, obj: object) -> ast.expr:
    """Rebuild an object of ``functools.cmp_to_key``: the key function, or the key that this function returned
    for an item.
    """
    compare, *held = [part for part in gc.get_referents(obj) if part is not COMPARING_KEY]
    make = rebuilder.constant(functools.cmp_to_key, "cmp_to_key")
    rebuilt = call(make, rebuilder.expr(compare))
    return rebuilder.assign(call(rebuilt, *exprs(rebuilder, held)) if held else rebuilt, "key")


def _reducible(cls: type) -> bool:
    """Return whether the pickle protocol of the class is C code, so that ``reduce`` runs no code of the program."""
    return cls.__module__ in _MODULES and not any(
        isinstance(value, types.FunctionType) for value in vars(cls).values()
    )


RULES: dict[type, Rule] = {
    **dict.fromkeys(_ITERATORS, reduce),
    **dict.fromkeys(_OF_DICTS, _of_dict),
    **dict.fromkeys(_OF_LISTS, _of_list),
    weakref.ref: _weak_reference,
    COMPARING_KEY: _comparing_key,
}

FAMILIES: tuple[tuple[Callable[[type], bool], Rule], ...] = ((_reducible, reduce),)
