"""The tables of the object model, which describe the objects of one trace."""

from __future__ import annotations

from contextvars import ContextVar, Token
from dataclasses import dataclass, field
from typing import Any

from fxstack_capture.sources import Source
from fxstack_capture.trace.effects import Effect
from fxstack_capture.trace.lazy_dict import LazyDict
from fxstack_capture.trace.object_records import ConsumedIterator, Parts, ProxiedCell, Recipes
from fxstack_capture.trace.registry import Registry


@dataclass(eq=False)
class ObjectTables:
    """The objects that one trace has met. An *object from outside* existed before the trace."""

    registry: Registry = field(default_factory=Registry)
    """Maps originals to proxies and back."""
    append_only: dict[int, tuple[list[Any], Source]] = field(default_factory=dict)
    """Lists from outside whose items the trace has not read, with their sources, by id of the proxy.

    The proxy holds only the items that the program has appended.
    """
    iterators: dict[int, ConsumedIterator] = field(default_factory=dict)
    """Partially consumed iterators by id. Each iterator is its own proxy."""
    contexts: dict[int, dict[Any, Any]] = field(default_factory=dict)
    """By id of the ``ctx`` of an autograd function: the values that the program wrote to C attributes."""
    lazy: dict[int, LazyDict] = field(default_factory=dict)
    """Incomplete dictionaries by id of the proxy dictionary."""
    dicts: dict[int, LazyDict] = field(default_factory=dict)
    """All lazily read dictionaries by id of the proxy dictionary."""
    instances: dict[int, LazyDict] = field(default_factory=dict)
    """States of instance dictionaries by id of the proxy instance."""
    slots: dict[int, dict[Any, Any]] = field(default_factory=dict)
    """By id of the proxy, then by slot descriptor: the content of the slot when the program first read or wrote it."""
    namespaces: dict[int, LazyDict] = field(default_factory=dict)
    """States of module namespaces by id of the real dictionary."""
    root_globals: dict[str, Any] | None = None
    """The globals of the root frame. Another function may have its code, and globals of its own."""
    cells: dict[int, ProxiedCell] = field(default_factory=dict)
    """Proxied cells by id of the proxy cell."""
    parts: dict[int, Parts] = field(default_factory=dict)
    """Parts of functions from outside by id of the function."""
    _made_at: dict[int, int] = field(default_factory=dict)
    """The step of the root frame (``Interpreter.root_step``) in which the program made a class, by the id of the
    class.
    """
    recipes: Recipes = field(default_factory=Recipes)
    """The calls of library functions that made classes in the trace."""
    opaque: set[int] = field(default_factory=set)
    """Ids of objects from outside that the program may pass on but not read, for example iterators."""
    guarded_by_repr: set[int] = field(default_factory=set)
    """Ids of objects from outside that are guarded by their text instead of their identity."""
    weak_proxies: dict[int, Any] = field(default_factory=dict)
    """The proxies of referents, by the id of the weak proxy (``weakref.proxy``) that the trace made."""
    context: dict[ContextVar[Any], Any] = field(default_factory=dict)
    """By context variable: the value that the program wrote to it."""
    tokens: dict[int, tuple[Token[Any], Any]] = field(default_factory=dict)
    """By the id of a token, which ``ContextVar.set`` returned: the token, and the value of the variable before the
    call.
    """
    cache_keys: dict[Any, Any] = field(default_factory=dict)
    """One key object for all equal keys of a ``functools.lru_cache``, by (id of the cache, key)."""
    reads: list[tuple[Any, Any]] | None = None
    """If not None, each read of an attribute, global or cell is appended: the holder and the name, None for a cell.

    The list is set while a backward of the program is traced, to find the state that the backward reads.
    """
    deferred: list[Effect] = field(default_factory=list)
    """Calls that the replacement code makes when the frame ends, for example of ``print``."""
    contents: dict[int, tuple[Any, ...]] = field(default_factory=dict)
    """The items of eagerly copied containers when they were wrapped, by id of the proxy."""
    set_orders: dict[int, tuple[Any, ...]] = field(default_factory=dict)
    """The members of sets of objects in the order of the original, by id of the proxy.

    The hashes of the proxies do not give this order.
    """
