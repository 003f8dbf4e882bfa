"""The tables of the object model. They describe the objects of one trace."""

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
    """The objects that one trace has found. An *object from outside* existed before the trace."""

    registry: Registry = field(default_factory=Registry)
    """Maps originals to proxies and back."""
    append_only: dict[int, tuple[list[Any], Source]] = field(default_factory=dict)
    """Lists from outside whose items the trace has not read, with their sources. The key is the id of the
    proxy.

    The proxy holds only the items that the program has appended.
    """
    iterators: dict[int, ConsumedIterator] = field(default_factory=dict)
    """Partially consumed iterators by id. Each iterator is its own proxy."""
    contexts: dict[int, dict[Any, Any]] = field(default_factory=dict)
    """Maps the id of an autograd function's ``ctx`` to the values that the program wrote to C attributes."""
    lazy: dict[int, LazyDict] = field(default_factory=dict)
    """The lazy dictionaries that are not complete yet. The key is the id of the proxy."""
    dicts: dict[int, LazyDict] = field(default_factory=dict)
    """All lazily read dictionaries. The key is the id of the proxy."""
    instances: dict[int, LazyDict] = field(default_factory=dict)
    """The lazy states of instance dictionaries. The key is the id of the instance's proxy."""
    slots: dict[int, dict[Any, Any]] = field(default_factory=dict)
    """Maps the id of a proxy and a slot descriptor to the content of the slot at the first read or write."""
    namespaces: dict[int, LazyDict] = field(default_factory=dict)
    """The lazy states of module namespaces. The key is the id of the real dictionary."""
    root_globals: dict[str, Any] | None = None
    """The globals of the root frame. Another function may have the same code with different globals."""
    cells: dict[int, ProxiedCell] = field(default_factory=dict)
    """Proxied cells. The key is the id of the proxy."""
    parts: dict[int, Parts] = field(default_factory=dict)
    """Parts of functions from outside. The key is the id of the function."""
    _made_at: dict[int, int] = field(default_factory=dict)
    """Maps the id of a class to the step of the root frame in which the program made the class.

    The step is a number (``Interpreter.root_step``).
    """
    recipes: Recipes = field(default_factory=Recipes)
    """The calls of library functions that made classes in the trace."""
    opaque: set[int] = field(default_factory=set)
    """Ids of objects that are their own proxies, and whose state no guard covers, for example iterators.

    The program may pass such an object on. Reading an attribute of the object breaks the graph. Two kinds of attributes
    are exceptions: slots, which get guards, and methods, whose calls have rules or break the graph.
    """
    guarded_by_repr: set[int] = field(default_factory=set)
    """Ids of objects from outside that are guarded by their text instead of their identity."""
    weak_proxies: dict[int, Any] = field(default_factory=dict)
    """Maps the id of a weak proxy (``weakref.proxy``) that the trace made to the proxy of its referent."""
    context: dict[ContextVar[Any], Any] = field(default_factory=dict)
    """Maps a context variable to the value that the program wrote to it."""
    tokens: dict[int, tuple[Token[Any], Any]] = field(default_factory=dict)
    """Maps the id of a token of ``ContextVar.set`` to the token, and to the value of the variable before that
    call.
    """
    cache_keys: dict[Any, Any] = field(default_factory=dict)
    """One key object for all equal keys of a ``functools.lru_cache``. The key here is (id of the cache, key)."""
    reads: list[tuple[Any, Any]] | None = None
    """If not None, each read of an attribute, global or cell appends (holder, name). For a cell, the name is
    None.

    The list exists while a backward of the program is traced, to find the state that the backward reads.
    """
    deferred: list[Effect] = field(default_factory=list)
    """Calls, for example of ``print``, that the replacement code makes when the frame ends."""
    contents: dict[int, tuple[Any, ...]] = field(default_factory=dict)
    """The items of a container when it was wrapped, if they were copied at once. The key is the id of the
    proxy.
    """
    set_orders: dict[int, tuple[Any, ...]] = field(default_factory=dict)
    """The members of sets of objects, in the order of the original. The key is the id of the proxy.

    The hashes of the proxies give another order.
    """
