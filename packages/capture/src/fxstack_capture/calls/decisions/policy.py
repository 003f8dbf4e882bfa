"""The C code that may run for real while tracing, because it reads and changes only its arguments.

Callables are listed by identity, by their module, or by the C type whose methods they are. A call of any
other C code breaks the graph.
"""

from __future__ import annotations

import _json
import _operator
import _random
import _thread
import array
import builtins
import collections
import datetime as dt
import functools
import io
import itertools
import re
import struct
import time
import types
import weakref
from typing import Any

import torch

from fxstack_capture.calls.c_functions import PURE, traits_of
from fxstack_capture.trace.constants import DESCRIPTOR_TYPES, OF_THE_INTERPRETER
from fxstack_interchange.format.literals import LITERAL_TYPES

_EXCEPTIONS = tuple(
    value for value in vars(builtins).values() if isinstance(value, type) and issubclass(value, BaseException)
)
_ITERTOOLS = tuple(value for value in vars(itertools).values() if isinstance(value, type))
_SAMPLES: tuple[Any, ...] = (
    *map(iter, ((), [], {}, {}.values(), {}.items(), set(), "", "é", b"", bytearray(), memoryview(b""))),
    *(iter(range(0)), iter(range(1 << 70)), iter(int, 0), zip(), re.finditer("", "")),
    *(reversed([]), reversed({}), reversed({}.values()), reversed({}.items()), reversed(collections.deque())),
    *map(iter, (collections.deque(), collections.OrderedDict())),
)
_ITERATORS = tuple(map(type, _SAMPLES))
"""The classes of iterators over builtin containers."""
_STRUCTURES = tuple(value for value in vars(torch.return_types).values() if isinstance(value, type))
"""Tuple classes with named fields. Torch's operators return instances, and programs create them as well."""
_DICTIONARIES: tuple[Any, ...] = ({}, collections.OrderedDict())
_VIEWS = tuple(type(view) for d in _DICTIONARIES for view in (d.keys(), d.values(), d.items()))
"""The classes of ``keys()``, ``values()`` and ``items()`` of dictionaries."""

PURE_TYPES: frozenset[type] = frozenset(
    {
        *(*LITERAL_TYPES, *DESCRIPTOR_TYPES, *OF_THE_INTERPRETER),
        *(object, type, super, property, staticmethod, classmethod, type(NotImplemented)),
        *(list, tuple, dict, set, frozenset, range, slice, bytearray, memoryview, array.array),
        *(collections.deque, collections.OrderedDict, collections.defaultdict),
        *(map, filter, zip, enumerate, reversed, *_ITERTOOLS, *_ITERATORS, *_VIEWS),
        *(types.MethodType, types.FunctionType, types.BuiltinFunctionType, types.MethodWrapperType),
        *(types.GenericAlias, types.UnionType, types.MappingProxyType, types.SimpleNamespace),
        *(types.CodeType, types.CellType, types.GeneratorType, types.TracebackType),
        *(functools.partial, functools._lru_cache_wrapper, type(functools.cmp_to_key(max)), weakref.ref),
        *(type(_operator.itemgetter(0)), type(_operator.attrgetter("a")), type(_operator.methodcaller("a"))),
        *(io.StringIO, io.BytesIO, _thread.RLock, _thread.LockType, _random.Random),
        *(_json.make_encoder, _json.make_scanner, re.Pattern, re.Match, struct.Struct),
        *(dt.timedelta, dt.date, dt.time, dt.datetime, dt.timezone, time.struct_time),
        *(torch.Size, torch.finfo, torch.iinfo, *_STRUCTURES, *_EXCEPTIONS),
    }
)
"""C types whose constructors and methods depend only on the objects involved, and change only these."""

IMPURE_METHODS: frozenset[object] = frozenset(
    {
        dt.date.__dict__["today"],
        dt.datetime.__dict__["now"],
        dt.datetime.__dict__["utcnow"],
        type.__dict__["__subclasses__"],
    }
)
"""Methods of pure types that are excluded, because they read other objects or the clock."""

_SIDE_EFFECT_MODULES = frozenset(
    (
        *(
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
        ),
        *("_random", "marshal", "_pickle", "faulthandler", "atexit", "_warnings", "_contextvars", "_asyncio"),
    )
)
"""Modules with C functions that have effects outside of the program."""
_SIDE_EFFECT_BUILTINS = frozenset(
    {"print", "open", "input", "breakpoint", "exec", "eval", "compile", "__import__"}
)


def is_pure_function(fn: object) -> bool:
    """Whether a C function may run for real. It is not a method."""
    return bool(traits_of(fn) & PURE)


def is_pure_method(descriptor: Any) -> bool:
    """Whether a method or slot of a C type may run for real."""
    return descriptor.__objclass__ in PURE_TYPES and descriptor not in IMPURE_METHODS


def is_pure_type(cls: type) -> bool:
    """Whether the constructor and the methods of a C type may run for real."""
    return cls in PURE_TYPES


def has_side_effect(fn: object) -> bool:
    """Whether C code is known to have side effects, such as ``print`` or a function of ``time``.

    The answer only selects the message of the graph break.
    """
    module = getattr(fn, "__module__", None) or getattr(
        type(getattr(fn, "__self__", None)), "__module__", None
    )
    return module in _SIDE_EFFECT_MODULES or (
        module == "builtins" and getattr(fn, "__name__", "") in _SIDE_EFFECT_BUILTINS
    )
