"""Facts about C functions that the tracer checks before it runs a C function on objects of a trace.

Each kind of fact has one table, keyed by the id of the function. ``TRAITS`` has boolean facts as bits.
``CALLBACKS`` lists the arguments that a function calls. ``CONSUMED`` lists the arguments that a function only
iterates over. (The methods of a C type are in no table: ``policy`` decides by the type whether they may run.)
"""

from __future__ import annotations

import _abc  # type: ignore[import-not-found]
import _bisect
import _collections_abc
import _functools  # type: ignore[import-not-found]
import _heapq
import _json
import _operator
import _struct
import _thread
import _weakref
import abc
import binascii
import bisect
import builtins
import cmath
import collections
import copyreg
import functools
import heapq
import itertools
import math
import operator
import os
import string
import types
import unicodedata
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from types import BuiltinFunctionType
from typing import Any, Final

import torch

KEEPS_SYMBOLS = 1 << 0
"""The function computes with a SymInt as with a number, or only moves it."""
INTEGERS_ONLY = 1 << 1
"""The symbolic form of the function is exact only for integers. Floats are specialised."""
HASHES_KEY = 1 << 2
"""The function hashes its second argument if the first is a dictionary or set. (SymInts have no hash.)"""
HASHES = 1 << 3
"""The function may distinguish objects by their hashes."""
IGNORES_VALUES = 1 << 4
"""The function is a method of dictionaries that does not read the values of its first argument."""
FORMATS_TEXT = 1 << 5
"""The function is ``%`` or ``%=``. It formats its second argument if the first is text."""
IDENTIFIES = 1 << 6
"""The function reads only the identity or the class of its argument, so the argument may be opaque."""
READS_DECIMALS = 1 << 7
"""The result for a Decimal does not depend on the decimal context."""
MOVES = 1 << 8
"""The function is a method of containers that moves items. It calls no method of the items."""
PURE = 1 << 9
"""The function is not a method, and reads and changes only its arguments. It may run for real."""


@dataclass(frozen=True, slots=True)
class Taken:
    """Which arguments of a C function are callables, by position and keyword."""

    positions: tuple[int, ...] = ()
    """The positions, counted from 0."""
    keywords: tuple[str, ...] = ()
    """The names of keyword arguments."""


# --- callables and iterables among the arguments -------------------------------------------------

_FIRST_ARGUMENT = (map, filter, functools.reduce, itertools.takewhile, itertools.dropwhile)
_BY_KEY = (sorted, list.sort, min, max, heapq.merge, bisect.bisect_left, bisect.bisect_right)
_CALLBACKS: tuple[tuple[Taken, tuple[Callable[..., Any], ...]], ...] = (
    (Taken((0,)), (*_FIRST_ARGUMENT, itertools.filterfalse, itertools.starmap)),
    (Taken((0,), ("mycmp",)), (functools.cmp_to_key,)),
    (Taken(keywords=("key",)), (*_BY_KEY, bisect.insort_left, bisect.insort_right)),
    (Taken((1,), ("func",)), (itertools.accumulate,)),
    (Taken((1,), ("key",)), (itertools.groupby,)),
)
CALLBACKS: dict[int, Taken] = {id(fn): taken for taken, fns in _CALLBACKS for fn in fns}
"""Maps the id of a C function to those of its arguments that it calls."""

_ALL: Final = slice(None)
_FIRST: Final = slice(1)
_SECOND: Final = slice(1, 2)
_LATER: Final = slice(1, None)
_MAKING: Final = ("__new__", "__init__")
_FILLED: Final = (list, tuple, dict, set, frozenset, collections.deque, collections.OrderedDict)
_CONSUMED: tuple[tuple[slice, tuple[Callable[..., Any], ...]], ...] = (
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
CONSUMED: dict[int, slice] = {id(fn): where for where, fns in _CONSUMED for fn in fns}
"""Maps the id of a C function to the arguments over which it iterates. It does not use them in any other way."""

# --- pure functions ------------------------------------------------------------------------------

_PURE_MODULES: tuple[types.ModuleType, ...] = (
    *(math, cmath, _operator, itertools, _functools, _bisect, _heapq),
    *(_struct, _json, binascii, unicodedata, _abc, _weakref),
)
_PURE_BUILTINS = (
    *(abs, divmod, max, min, pow, round, sum, bin, hex, oct, all, any, sorted, len, iter, next),
    *(ascii, chr, ord, format, repr, hash, id, str.maketrans, bytes.maketrans, bytearray.maketrans),
    *(callable, isinstance, issubclass, getattr, hasattr, setattr, delattr, builtins.__build_class__),
    *(_thread.allocate_lock, os.fspath),
    *(fn for fn in vars(os.path).values() if getattr(fn, "__name__", "").startswith("_path_")),
)


def _pure_functions() -> list[Any]:
    """Return the C functions with the trait ``PURE``: all of some modules, and some builtins."""
    modules = (*_PURE_MODULES, collections, _collections_abc, string, copyreg)
    found = [v for module in modules for v in vars(module).values() if type(v) is BuiltinFunctionType]
    return [fn for fn in (*found, *_PURE_BUILTINS) if fn not in _OF_OUTSIDE]


_OF_OUTSIDE = (_weakref.getweakrefcount, _weakref.getweakrefs)
"""Functions of pure modules that are excluded, because they read objects other than their arguments."""


# --- traits --------------------------------------------------------------------------------------

_DICTIONARIES = (dict, collections.OrderedDict, collections.defaultdict)
_MOVABLE = (list, tuple, *_DICTIONARIES, collections.deque)
_LOOKS_NOT = frozenset({"__repr__", "__iter__", "__len__", "values", "items", "keys", "copy"})
"""Methods of hash tables that do not hash any object."""
_KEYED = (
    *("get", "__getitem__", "__contains__", "__setitem__", "__delitem__"),
    *("setdefault", "pop", "move_to_end", "__missing__"),
)
_WHOLE = ("update", "popitem", "clear", "copy", "__iter__", "__len__", "__copy__")


def _methods(classes: Iterable[type], names: Iterable[str]) -> list[Any]:
    """Return the methods with these names that the classes themselves define, without inherited methods."""
    return [vars(cls)[name] for cls in classes for name in names if name in vars(cls)]


_MOVERS: tuple[Any, ...] = (
    *_methods((list,), ("append", "pop", "insert", "clear", "copy", "reverse")),
    *_methods((dict,), ("values", "items", "keys", "copy", "clear", "popitem")),
    *_methods((collections.deque,), ("append", "appendleft", "pop", "popleft", "clear", "copy", "reverse")),
)

_DECLARED: tuple[tuple[int, Iterable[Any]], ...] = (
    (
        KEEPS_SYMBOLS,
        (
            *(v for v in vars(_operator).values() if callable(v)),
            *(v for v in vars(itertools).values() if isinstance(v, type)),
            *(
                member
                for cls in _MOVABLE
                for name, member in vars(cls).items()
                # These methods would print the expression of a symbol instead of its number.
                if name not in {"__repr__", "__str__", "__format__"}
            ),
            *(operator.add, abs, len, callable, math.ceil, math.floor, math.trunc, math.prod),
            *(min, max, sum, sorted, pow, divmod, any, all),
            *(isinstance, id, map, zip, filter, enumerate, reversed, iter),
            *(next, *_MOVABLE, functools.partial, functools.reduce, slice, torch.Size),
        ),
    ),
    (INTEGERS_ONLY, (operator.floordiv, operator.mod, operator.ifloordiv, operator.imod)),
    (
        HASHES_KEY | HASHES,
        (
            *(operator.getitem, operator.setitem, operator.delitem, operator.contains),
            *_methods(_DICTIONARIES, _KEYED),
        ),
    ),
    (
        HASHES,
        (
            *(set, frozenset, *_DICTIONARIES, hash),
            *(
                member
                for cls in (set, frozenset, dict, collections.OrderedDict)
                for name, member in vars(cls).items()
                if callable(member) and name not in _LOOKS_NOT
            ),
        ),
    ),
    (IGNORES_VALUES, _methods(_DICTIONARIES, _WHOLE)),
    (FORMATS_TEXT, (operator.mod, operator.imod)),
    (IDENTIFIES, (isinstance, vars(abc)["_abc_instancecheck"], id, callable, type, operator.is_)),
    (
        READS_DECIMALS,
        (
            *(float, int, str, repr, hash, bool, operator.truth, operator.eq, operator.ne),
            *(operator.lt, operator.le, operator.gt, operator.ge),
        ),
    ),
    (MOVES, _MOVERS),
    (PURE, _pure_functions()),
)
"""Pairs: a trait, and the functions that have it."""

TRAITS: dict[int, int] = {}
"""Maps the id of a C function to its traits, as the bitwise or of the constants above."""
for _trait, _functions in _DECLARED:
    for _function in _functions:
        TRAITS[id(_function)] = TRAITS.get(id(_function), 0) | _trait


def traits_of(fn: object) -> int:
    """Return the traits of ``fn`` as bits. 0 for a function without traits. Callers test with ``&``."""
    return TRAITS.get(id(fn), 0)
