"""Scan the arguments of C code before it runs.

The scan finds tensors, symbolic numbers, lazy dictionaries and objects that may run Python code.
"""

from __future__ import annotations

import collections
import itertools
import types
from collections.abc import Callable, Iterable, Mapping
from types import MappingProxyType
from typing import Any, Final

import torch

from fxstack_capture import native
from fxstack_capture.numpy_side.scalar import Scalar
from fxstack_capture.trace.constants import IDENTITY_TYPES, IMMUTABLE_TYPES
from fxstack_capture.trace.state import Objects, Trace

TENSOR: Final = 1
"""The flag of tensors."""
PYTHON: Final = 2  # the flag of objects whose use may start Python frames
LAZY: Final = 4
"""The flag of dictionaries that must be filled before C code reads them."""
SYMBOLIC: Final = 8
"""The flag of symbolic numbers."""

_SYMBOLIC = (torch.SymInt, torch.SymFloat, torch.SymBool, Scalar)
_SIMPLE = (IMMUTABLE_TYPES | IDENTITY_TYPES | {types.BuiltinFunctionType, slice}) - {types.FunctionType, type}
_SEQUENCES = frozenset({list, tuple, set, frozenset, collections.deque, torch.Size})
_VIEWS = frozenset({type({}.keys()), type({}.values()), type({}.items())})

# How ``native/readers/scan.c`` walks over an instance of a class. The higher bits of a code contain the
# flags.
_LIST, _TUPLE, _DICT, _ITEMS, _RECEIVER = range(1, 6)
_SHIFT: Final = 3
CODES: Final[Mapping[type, int]] = MappingProxyType(
    {
        **dict.fromkeys(_SIMPLE, 0),
        **dict.fromkeys(_SYMBOLIC, SYMBOLIC << _SHIFT),
        **dict.fromkeys((set, frozenset, collections.deque), _ITEMS),
        list: _LIST,
        tuple: _TUPLE,
        torch.Size: _TUPLE,
        dict: _DICT,
    }
)
"""Maps a class to its code: the kind of walk, and the flags. Each trace adds the classes that it scans."""


def code_of(cls: type) -> int:
    """Return the code of a class that is not in ``CODES``. Each trace calls this once for each class.

    Instances of such a class may start Python frames. Iterators and dictionary views may also contain
    tensors.
    """
    if issubclass(cls, torch.Tensor):
        return TENSOR << _SHIFT
    walks = (dict, _DICT), (list, _LIST), (tuple, _TUPLE), (types.BuiltinMethodType, _RECEIVER)
    for base, walk in walks:
        if issubclass(cls, base):
            return PYTHON << _SHIFT | walk
    if hasattr(cls, "__next__") or cls in _VIEWS:
        return (PYTHON | TENSOR) << _SHIFT
    return PYTHON << _SHIFT


def scan(
    trace: Trace,
    values: tuple[Any, ...],
    python_objects: list[Any],
    *,
    every: bool = True,
    keys: bool = False,
) -> int:
    """Return the flags of all objects that are reachable through builtin containers, as one bit set.

    Objects with the flag ``PYTHON`` are appended to ``python_objects``. If ``every``, all of them are
    appended. Otherwise, one object of each class and all opaque objects are appended. ``keys``: if the first
    value is a dictionary, only its keys are scanned.
    """
    if native.AVAILABLE:
        objects = trace.objects
        state = trace.calls.scanned, objects.lazy, objects.opaque
        result: int = native.scan(*state, values, python_objects, every, keys, code_of)
        return result
    return scan_interpreted(trace, values, python_objects)


def scan_interpreted(trace: Trace, values: tuple[Any, ...], python_objects: list[Any]) -> int:
    """Do the same as ``scan`` with ``every=True``, without the native extension."""
    flags = 0
    seen: set[int] = set()
    work = list(values)
    lazy, scanned = trace.objects.lazy, trace.calls.scanned
    while work:
        value = work.pop()
        code = scanned.get(type(value))
        if code is None:
            code = scanned[type(value)] = code_of(type(value))
        if not code or id(value) in seen:
            continue
        seen.add(id(value))
        flags |= code >> _SHIFT
        if code >> _SHIFT & PYTHON:
            python_objects.append(value)
        if code & _WALK == _DICT and id(value) in lazy:
            flags |= LAZY
        work.extend(_WALKS[code & _WALK](value))
    return flags


_WALK: Final = (1 << _SHIFT) - 1
"""The bits of a code that select the kind of walk."""
_WALKS: Final[tuple[Callable[[Any], Iterable[Any]], ...]] = (
    lambda _: (),
    list.__iter__,
    tuple.__iter__,
    lambda value: itertools.chain.from_iterable(dict.items(value)),
    iter,
    lambda value: (value.__self__,),
)
"""Indexed by the kind of walk: the function that yields the parts of a value."""


def complete(objects: Objects, values: Iterable[Any], *, instances: bool) -> None:
    """Fill every lazy dictionary that is reachable through builtin containers.

    If ``instances``, the search also follows instances and bound methods.
    """
    seen: set[int] = set()
    work = list(values)
    while work:
        value = work.pop()
        if id(value) in seen or type(value) in _SIMPLE:
            continue
        seen.add(id(value))
        if isinstance(value, dict):
            if id(value) in objects.lazy:
                objects.lazy[id(value)].expand()
            work.extend(itertools.chain.from_iterable(dict.items(value)))
        elif type(value) in _SEQUENCES:
            work.extend(value)
        elif isinstance(value, list):
            work.extend(list.__iter__(value))
        elif isinstance(value, tuple):
            work.extend(tuple.__iter__(value))
        elif instances and id(value) in objects.instances:
            objects.expand(value)
            work.append(objects.instances[id(value)].proxy)
        elif instances and isinstance(value, types.MethodType):
            work.append(value.__self__)
