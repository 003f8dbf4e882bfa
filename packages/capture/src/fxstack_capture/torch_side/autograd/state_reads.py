"""The Python state that a backward reads. It may change between the forward and the backward.

Eager runs hooks, and the methods of an ``autograd.Function``, when the backward runs. A graph contains their
operators from the trace. So the trace records each read of a global, cell, attribute or container from
outside. For an ``autograd.Function``, each backward compares this state. A hook that reads such state does
not become part of a graph.
"""

from __future__ import annotations

import dis
import functools
import inspect
from collections import deque
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from types import CellType, CodeType, FunctionType, ModuleType
from typing import Any

import torch

from fxstack_capture.numpy_side.array import Array
from fxstack_capture.objects.wrapping import is_definition
from fxstack_capture.torch_side.recording.protocol import TracerProtocol
from fxstack_capture.trace.constants import DESCRIPTOR_TYPES
from fxstack_capture.trace.late_guards.stable_modules import is_stable_module
from fxstack_capture.trace.lazy_dict import ABSENT
from fxstack_interchange.bytecode import Kind, opcodes_of
from fxstack_interchange.format.literals import LITERAL_TYPES

# Limits: neither state that only C code reads, nor the contents of tensors are compared.

_CONTAINERS = (dict, list, tuple, set, frozenset, deque)
_MUTABLE = (dict, list, set, deque)
_MAX_PARTS = 10_000
StateLocation = tuple[Any, Any]
"""A location: (object, attribute name), (namespace, key), (cell, None) or (container, None)."""


class State:
    """Locations that a backward reads, with their values in the trace."""

    def __init__(self, locations: list[StateLocation]) -> None:
        self._values = [(location, list(_parts(_value_at(*location)))) for location in locations]

        self.is_copied = False
        """Whether the node contains copies of objects that the backward reads. A run of it cannot see a
        change of the originals.
        """

    def __bool__(self) -> bool:
        return bool(self._values)

    def has_changed(self) -> bool:
        """Return whether a location has another value than in the trace. The backward of a compiled graph
        asks this first.

        Raises RuntimeError if the node contains copies (``is_copied``), because no run can see the change.
        """
        changed = any(
            not _equal(list(_parts(_value_at(*location))), before) for location, before in self._values
        )
        if changed and self.is_copied:
            raise RuntimeError("an object that a backward of the program reads was changed after the forward")
        return changed


@contextmanager
def note_reads(objects: Any) -> Iterator[list[StateLocation]]:
    """Collect the locations that the program reads inside of the context. The ``with`` statement binds their
    list.
    """
    before, objects.reads = objects.reads, []
    reads = objects.reads
    try:
        yield reads
    finally:
        objects.reads = before
        if before is not None:
            before += reads


def find_state(tracer: TracerProtocol, reads: Iterable[StateLocation], *roots: Any) -> State | None:
    """Return the state among the reads. None if the trace itself has made a part of it.

    ``roots`` are the functions that were called. Their defaults and bound arguments count as read.
    """
    objects: Any = tracer.trace.objects
    bound_values = [(value, None) for root in roots for value in _bound_values(objects.original_of(root))]
    locations: list[StateLocation] = []
    for holder, name in (*reads, *bound_values):
        original = objects.original_of(holder)
        value = _value_at(original, name)
        outside = objects.is_preexisting(holder) or (name is not None and type(holder) is dict)
        if isinstance(holder, (torch.Tensor, Array)) or _is_constant_binding(original, value):
            continue
        if outside or (name is None and type(holder) is not CellType):
            locations.append((original, name))
        elif isinstance(value, _CONTAINERS) and objects.is_preexisting(value):
            locations.append((objects.original_of(value), None))
        elif type(holder) is CellType and (isinstance(value, _MUTABLE) or _may_be_rebound(tracer, holder)):
            return None
    return State(locations)


def _is_constant_binding(holder: Any, value: Any) -> bool:
    """Return whether the binding of ``value`` never changes.

    This is so if it is a definition, or belongs to a library that binds its names only once.
    """
    if type(holder) is dict:
        name = holder.get("__name__")
    elif isinstance(holder, ModuleType | type):
        name = vars(holder).get("__module__" if isinstance(holder, type) else "__name__")
    else:
        name = None
    torchs = isinstance(name, str) and name.partition(".")[0] == "torch"
    return torchs or is_stable_module(name) or is_definition(value) or isinstance(value, _DESCRIPTORS)


_DESCRIPTORS = (*DESCRIPTOR_TYPES, property, staticmethod, classmethod)


def _bound_values(fn: Any) -> Iterator[Any]:
    """Yield the bound arguments and the defaults of a function."""
    if isinstance(fn, functools.partial):
        yield from (*fn.args, *fn.keywords.values(), *_bound_values(fn.func))
    fn = getattr(fn, "__func__", fn)
    if type(fn) is FunctionType:
        yield from (*(fn.__defaults__ or ()), *(fn.__kwdefaults__ or {}).values())


def _may_be_rebound(tracer: TracerProtocol, cell: CellType) -> bool:
    """Return whether the variable of a cell may be bound again.

    The running function that owns the cell, or a function inside of it, could do this.
    """
    frame = tracer.trace.interp.current_frame()
    while frame is not None:
        for index, value in enumerate(frame.fast):
            name = frame.program.names[index]
            if value is cell and name in frame.code.co_cellvars:
                return _stores(frame.code, name, frame.program.offsets[frame.pc])
        frame = frame.back
    return False


def _stores(code: CodeType, name: str, start: int) -> bool:
    """Return whether code after the offset ``start``, or a nested function, stores the variable ``name``.

    If a jump leads to an earlier offset, the code from that offset on is included.
    """
    steps = list(dis.get_instructions(code))
    later = [step for step in steps if step.offset > start]
    first = min([start + 1, *(step.argval for step in later if step.opcode in _JUMPS)])
    reached = (step.argval for step in steps if step.offset >= first and step.opname in _BINDS_CELL)
    inner = (part for part in code.co_consts if type(part) is CodeType and name in part.co_freevars)
    return name in reached or any(_stores(part, name, -1) for part in inner)


_BINDS_CELL = opcodes_of(Kind.BINDS_CELL)
_JUMPS = frozenset({*dis.hasjrel, *dis.hasjabs})


def _value_at(holder: Any, name: Any) -> Any:
    """Return the current value at the location ``(holder, name)`` (``StateLocation``), or ABSENT."""
    if type(holder) is CellType:
        return holder.cell_contents if holder != CellType() else ABSENT
    if name is None:
        return holder
    if type(holder) is dict:
        return holder.get(name, ABSENT)
    return inspect.getattr_static(holder, name, ABSENT)


def _parts(value: Any) -> Iterator[Any]:
    """Yield the leaves of nested containers, and the types and lengths of the containers. ``_equal`` compares
    them.
    """
    waiting, count = [value], 0
    while waiting and count < _MAX_PARTS:
        value, count = waiting.pop(), count + 1
        if not isinstance(value, _CONTAINERS):
            yield value
            continue
        items = [*value.keys(), *value.values()] if isinstance(value, dict) else [*value]
        waiting += items
        yield type(value)
        yield len(items)
    if waiting:
        yield object()  # a large container is not compared, and never counts as equal


def _equal(now: list[Any], before: list[Any]) -> bool:
    """Return whether two lists from ``_parts`` have the same objects, or equal literals, at each position."""
    return len(now) == len(before) and all(
        a is b or (type(a) is type(b) and type(a) in LITERAL_TYPES and a == b)
        for a, b in zip(now, before, strict=True)
    )
