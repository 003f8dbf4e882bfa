"""What C code may meet in its arguments: one walk over them before it runs."""

from __future__ import annotations

import collections
import itertools
import types
from typing import TYPE_CHECKING, Any, Final

import torch

from fxstack_capture.world.constants import IDENTITY_TYPES, IMMUTABLE_TYPES

if TYPE_CHECKING:
    from collections.abc import Iterable

TENSOR: Final = 1
PYTHON: Final = 2  # something whose use may start Python frames
LAZY: Final = 4
SYMBOLIC: Final = 8

_SYMBOLIC = (torch.SymInt, torch.SymFloat, torch.SymBool)
_SIMPLE = (IMMUTABLE_TYPES | IDENTITY_TYPES | {types.BuiltinFunctionType, slice}) - {
    types.FunctionType,
    type,
}
_SEQUENCES = frozenset({list, tuple, set, frozenset, collections.deque, torch.Size})
_VIEWS = frozenset({type({}.keys()), type({}.values()), type({}.items())})


def scan(lazy: dict[int, Any], values: Iterable[Any], found: list[Any]) -> int:
    """Flags of everything reachable through builtin containers; ``PYTHON`` objects are added to
    ``found``.

    ``lazy`` holds the incomplete dictionaries by id.
    """
    flags = 0
    seen: set[int] = set()
    work = list(values)
    while work:
        value = work.pop()
        cls = type(value)
        if cls in _SIMPLE:
            continue
        if id(value) in seen:
            continue
        if cls in _SEQUENCES:
            seen.add(id(value))
            work.extend(value)
        elif cls is dict:
            seen.add(id(value))
            if id(value) in lazy:
                flags |= LAZY
            work.extend(value)
            work.extend(value.values())
        elif isinstance(value, torch.Tensor):
            flags |= TENSOR
        elif cls in _SYMBOLIC:
            flags |= SYMBOLIC
        else:
            seen.add(id(value))
            found.append(value)
            flags |= PYTHON | _scan_subclass(value, work)
    return flags


def _scan_subclass(value: Any, work: list[Any]) -> int:
    """Instances: items of container subclasses, receivers of bound methods; iterators may hold
    anything.
    """
    if isinstance(value, dict):
        work.extend(dict.items(value))
    elif isinstance(value, list):
        work.extend(list.__iter__(value))
    elif isinstance(value, tuple):
        work.extend(tuple.__iter__(value))
    elif isinstance(value, types.BuiltinMethodType):
        work.append(value.__self__)
    elif hasattr(type(value), "__next__") or type(value) in _VIEWS:
        return TENSOR
    return 0


def complete(world: Any, values: Iterable[Any], *, instances: bool) -> None:
    """Fill every incomplete dict reachable through builtin containers (and through instances, if so
    asked).
    """
    seen: set[int] = set()
    work = list(values)
    while work:
        value = work.pop()
        if id(value) in seen or type(value) in _SIMPLE:
            continue
        seen.add(id(value))
        if isinstance(value, dict):
            if id(value) in world.lazy:
                world.lazy[id(value)].expand()
            work.extend(itertools.chain.from_iterable(dict.items(value)))
        elif type(value) in _SEQUENCES:
            work.extend(value)
        elif isinstance(value, list):
            work.extend(list.__iter__(value))
        elif isinstance(value, tuple):
            work.extend(tuple.__iter__(value))
        elif instances and id(value) in world.instances:
            world.expand(value)
            work.append(world.instances[id(value)].mirror)
        elif instances and isinstance(value, types.MethodType):
            work.append(value.__self__)
