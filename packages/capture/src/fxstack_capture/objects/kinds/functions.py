"""Functions from outside: their defaults and closures as objects of the trace."""

from __future__ import annotations

from types import CellType, FunctionType
from typing import Any

from fxstack_capture.guards.records import CellEmpty, Equals, IdentityIs, SameObject
from fxstack_capture.sources import BuiltinAttr, Cell, Item, Key, Pinned, Source, pinned
from fxstack_capture.trace.constants import IMMUTABLE_TYPES
from fxstack_capture.trace.late_guards.stable_modules import is_stable_module
from fxstack_capture.trace.object_records import Parts, ProxiedCell
from fxstack_capture.trace.records import DeferredLocal
from fxstack_capture.trace.registry import Entry
from fxstack_capture.trace.state import Objects


def parts(objects: Objects, fn: FunctionType) -> Parts:
    """Return the defaults and the closure of a function as objects of the trace.

    ``Objects.function_parts`` calls this once for a function from outside. For a function made in the trace,
    it calls this at each call of the function.
    """
    if objects.is_new(fn):
        # Do not cache the parts of a function made in the trace, because the program may change its defaults.
        return Parts(fn, fn.__defaults__ or (), fn.__kwdefaults__ or {}, fn.__closure__ or ())
    entered = _enter_parts(objects, fn, entry_of(objects, fn).source)
    objects.parts[id(fn)] = entered
    return entered


def entry_of(objects: Objects, fn: FunctionType) -> Entry:
    """Return the registry entry of a function from outside.

    A function without an entry is registered as its own proxy.
    """
    entry = objects.registry.by_proxy.get(id(fn))
    return objects.registry.add(fn, fn, pinned(fn, fn.__qualname__)) if entry is None else entry


def _enter_parts(objects: Objects, fn: FunctionType, source: Source) -> Parts:
    """Wrap the defaults and the closure of a function from outside. Guard its code object."""
    if is_stable_module(fn.__module__) and fn not in objects.recreated:
        source = pinned(fn, fn.__qualname__)
    guard_part(objects, fn, "__code__", source)
    is_recreated = fn in objects.recreated
    defaults: tuple[object, ...] = ()
    if fn.__defaults__:
        part_source = BuiltinAttr(source, "__defaults__")
        if type(source) is Pinned and IMMUTABLE_TYPES.issuperset(map(type, fn.__defaults__)):
            guard_part(objects, fn, "__defaults__", source)
            defaults = fn.__defaults__
        else:
            defaults = tuple(
                _default(objects, d, Item(part_source, i), is_recreated)
                for i, d in enumerate(fn.__defaults__)
            )
    kwdefaults: dict[str, object] = {}
    if fn.__kwdefaults__:
        part_source = BuiltinAttr(source, "__kwdefaults__")
        kwdefaults = {
            k: _default(objects, d, Key(part_source, k), is_recreated) for k, d in fn.__kwdefaults__.items()
        }
    closure: tuple[CellType, ...] = ()
    if fn.__closure__:
        part_source = BuiltinAttr(source, "__closure__")
        closure = tuple(proxy_cell(objects, c, Item(part_source, i)) for i, c in enumerate(fn.__closure__))
    return Parts(fn, defaults, kwdefaults, closure)


def guard_part(objects: Objects, fn: FunctionType, name: str, source: Source) -> None:
    """Guard the identity of an attribute that CPython stores in the function itself, such as ``__code__``."""
    part = getattr(fn, name)
    objects.trace.guard(BuiltinAttr(source, name), IdentityIs(part, id(part)))


def _default(objects: Objects, value: object, source: Source, is_recreated: bool) -> object:
    """Wrap a default value. A number is a constant, except as a default of a recreated function."""
    # All calls that omit the argument use the same number, so the number need not become dynamic. A recreated
    # function may have another number in each call.
    if type(value) in (int, float) and not is_recreated:
        objects.trace.guard(source, Equals(value))
        return value
    return objects.enter(value, source)


def proxy_cell(objects: Objects, cell: CellType, source: Source) -> CellType:
    """Return the proxy of a cell from outside. The proxy contains a ``DeferredLocal``. The first load wraps
    its value.
    """
    entry = objects.registry.by_original.get(id(cell))
    if entry is not None:
        if entry.source != source:
            objects.trace.guard(source, SameObject(entry.source))
        shared: CellType = entry.proxy
        return shared
    try:
        lazy = DeferredLocal(cell.cell_contents, Cell(source))
    except ValueError:
        lazy = None
    proxy = CellType() if lazy is None else CellType(lazy)
    objects.registry.add(cell, proxy, source)
    objects.cells[id(proxy)] = ProxiedCell(cell, proxy, source, lazy)
    return proxy


def load_cell(objects: Objects, cell: CellType) -> Any:
    """Return the content of a cell of the trace. The first load wraps the content.

    Raises ValueError for an empty cell, as CPython does. The guards then demand that the cell is empty.
    """
    if cell == CellType():
        proxied = objects.cells.get(id(cell))
        if proxied is not None and proxied.lazy is None:
            objects.trace.guard(proxied.source, CellEmpty())
        raise ValueError("Cell is empty")
    value = cell.cell_contents
    if type(value) is not DeferredLocal:
        return value
    entered = objects.enter(value.value, value.source)
    cell.cell_contents = entered
    proxied = objects.cells.get(id(cell))
    if proxied is not None and proxied.lazy is value:
        proxied.entered, proxied.loaded = entered, True
    return entered
