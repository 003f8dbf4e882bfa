"""Which compiled code may run for real while tracing: it must touch nothing but its arguments.

Callables are listed by identity, by the C type whose methods they are, or by the module that holds
them. Whatever is not listed here ends the graph when it is called.
"""

from __future__ import annotations

import _abc  # type: ignore[import-not-found]
import _bisect
import _collections_abc
import _functools  # type: ignore[import-not-found]
import _heapq
import _json
import _operator
import _random
import _struct
import _thread
import _weakref
import array
import binascii
import builtins
import cmath
import collections
import copyreg
import datetime as dt
import functools
import io
import itertools
import math
import os
import re
import string
import struct
import time
import types
import unicodedata
import weakref
from types import BuiltinFunctionType
from typing import Any

import torch

from fxstack_capture.objects.constants import DESCRIPTOR_TYPES, OF_THE_INTERPRETER
from fxstack_interchange.format.literals import LITERAL_TYPES

_EXCEPTIONS = tuple(
    value for value in vars(builtins).values() if isinstance(value, type) and issubclass(value, BaseException)
)
_ITERTOOLS = tuple(value for value in vars(itertools).values() if isinstance(value, type))
_SAMPLES: tuple[Any, ...] = (
    iter(()),
    iter([]),
    iter({}),
    iter({}.values()),
    iter({}.items()),
    iter(set()),
    iter(""),
    iter(b""),
    iter(bytearray()),
    iter(range(0)),
    iter(range(1 << 70)),
    iter(int, 0),
    reversed([]),
    reversed({}),
    reversed({}.values()),
    reversed({}.items()),
    iter(collections.deque()),
    reversed(collections.deque()),
    iter(collections.OrderedDict()),
    iter("é"),
    iter(memoryview(b"")),
    zip(),
    re.finditer("", ""),
)
_ITERATORS = tuple(map(type, _SAMPLES))
_STRUCTURES = tuple(value for value in vars(torch.return_types).values() if isinstance(value, type))
"""Tuples with named fields that torch's operators return; programs make them, too."""
_VIEWS: tuple[type, ...] = (
    type({}.keys()),
    type({}.values()),
    type({}.items()),
    type(collections.OrderedDict().keys()),
    type(collections.OrderedDict().values()),
    type(collections.OrderedDict().items()),
)

PURE_TYPES: frozenset[type] = frozenset(
    {
        *LITERAL_TYPES,
        *DESCRIPTOR_TYPES,
        object,
        bytearray,
        memoryview,
        list,
        tuple,
        dict,
        set,
        frozenset,
        range,
        slice,
        type(NotImplemented),
        collections.deque,
        collections.OrderedDict,
        collections.defaultdict,
        map,
        filter,
        zip,
        enumerate,
        reversed,
        property,
        staticmethod,
        classmethod,
        super,
        type,
        types.MethodType,
        types.FunctionType,
        types.BuiltinFunctionType,
        types.MethodWrapperType,
        types.GenericAlias,
        types.UnionType,
        types.MappingProxyType,
        types.SimpleNamespace,
        types.CodeType,
        types.CellType,
        types.GeneratorType,
        types.TracebackType,
        functools.partial,
        io.StringIO,
        io.BytesIO,
        _thread.RLock,
        _thread.LockType,
        functools._lru_cache_wrapper,
        type(functools.cmp_to_key(max)),
        _json.make_encoder,
        _json.make_scanner,
        weakref.ref,
        re.Pattern,
        re.Match,
        struct.Struct,
        array.array,
        _random.Random,
        dt.timedelta,
        dt.date,
        dt.time,
        dt.datetime,
        dt.timezone,
        torch.Size,
        torch.finfo,
        torch.iinfo,
        type(_operator.itemgetter(0)),
        type(_operator.attrgetter("a")),
        type(_operator.methodcaller("a")),
        *_EXCEPTIONS,
        *_ITERTOOLS,
        *_ITERATORS,
        *_VIEWS,
        *_STRUCTURES,
        time.struct_time,
        *OF_THE_INTERPRETER,
    }
)
"""C types whose constructors and methods depend on, and change, only the objects involved."""

_IMPURE_METHODS: frozenset[object] = frozenset(
    {
        dt.date.__dict__["today"],
        dt.datetime.__dict__["now"],
        dt.datetime.__dict__["utcnow"],
        type.__dict__["__subclasses__"],
    }
)

_PURE_MODULES: tuple[types.ModuleType, ...] = (
    math,
    cmath,
    _operator,
    _bisect,
    _heapq,
    _struct,
    _functools,
    _json,
    itertools,
    binascii,
    unicodedata,
    _abc,
    _weakref,
)
_PURE_BUILTINS = (
    abs,
    all,
    any,
    ascii,
    bin,
    callable,
    chr,
    divmod,
    format,
    getattr,
    hasattr,
    hash,
    hex,
    id,
    isinstance,
    issubclass,
    iter,
    len,
    max,
    min,
    next,
    oct,
    ord,
    pow,
    repr,
    round,
    setattr,
    delattr,
    sorted,
    sum,
    str.maketrans,
    _thread.allocate_lock,
    os.fspath,
    *(fn for fn in vars(os.path).values() if getattr(fn, "__name__", "").startswith("_path_")),
    bytes.maketrans,
    bytearray.maketrans,
    builtins.__build_class__,
)


def _from_modules() -> set[int]:
    found = {
        id(value)
        for module in _PURE_MODULES
        for value in vars(module).values()
        if type(value) is BuiltinFunctionType
    }
    for module in (collections, _collections_abc, string, copyreg):
        found |= {id(v) for v in vars(module).values() if type(v) is BuiltinFunctionType}
    return found


_OF_OUTSIDE = (_weakref.getweakrefcount, _weakref.getweakrefs)
"""Functions of pure modules that look at what the program has elsewhere."""

_PURE_FUNCTIONS: frozenset[int] = frozenset(
    (_from_modules() | {id(fn) for fn in _PURE_BUILTINS}) - {id(fn) for fn in _OF_OUTSIDE}
)

_SIDE_EFFECT_MODULES = frozenset(
    {
        "time",
        "posix",
        "nt",
        "io",
        "_io",
        "_thread",
        "_socket",
        "select",
        "_signal",
        "signal",
        "gc",
        "sys",
        "_random",
        "marshal",
        "_pickle",
        "faulthandler",
        "atexit",
        "_warnings",
        "_contextvars",
        "_asyncio",
    }
)
_SIDE_EFFECT_BUILTINS = frozenset(
    {"print", "open", "input", "breakpoint", "exec", "eval", "compile", "__import__"}
)


def is_pure_function(fn: object) -> bool:
    """A free C function that may run for real."""
    return id(fn) in _PURE_FUNCTIONS


def is_pure_method(descriptor: Any) -> bool:
    """A method or slot of a C type that may run for real."""
    return descriptor.__objclass__ in PURE_TYPES and descriptor not in _IMPURE_METHODS


def is_pure_type(cls: type) -> bool:
    return cls in PURE_TYPES


def has_side_effect(fn: object) -> bool:
    """Compiled code known to act on the world outside (for the message of the graph break)."""
    module = getattr(fn, "__module__", None) or getattr(
        type(getattr(fn, "__self__", None)), "__module__", None
    )
    return module in _SIDE_EFFECT_MODULES or (
        module == "builtins" and getattr(fn, "__name__", "") in _SIDE_EFFECT_BUILTINS
    )
