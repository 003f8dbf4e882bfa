"""The object model: ``trace.state.Objects`` on top of the registry, lazy dictionaries and class lookups."""

from __future__ import annotations

import threading
from collections.abc import Callable
from contextvars import ContextVar, Token
from itertools import zip_longest
from types import CellType, FunctionType
from typing import Any

import torch

from fxstack_capture.breaks import graph_break
from fxstack_capture.guards.records import Equals, IdentityIs, SameObject
from fxstack_capture.objects import wrapping
from fxstack_capture.objects.addresses import Addresses
from fxstack_capture.objects.distinct import Distinctions
from fxstack_capture.objects.instances import dict_descriptor
from fxstack_capture.objects.kinds import functions
from fxstack_capture.objects.kinds.append_only_lists import AppendOnlyLists
from fxstack_capture.objects.kinds.consumed_iterators import ConsumedIterators
from fxstack_capture.objects.kinds.contexts import Contexts
from fxstack_capture.objects.kinds.random_draws import Draws
from fxstack_capture.objects.kinds.recreated_functions import RecreatedFunctions
from fxstack_capture.objects.protocols import abstract_classes, descriptors, stores
from fxstack_capture.objects.protocols import loads as attributes
from fxstack_capture.objects.protocols.classes import ClassReads
from fxstack_capture.objects.stable_modules import is_stable, is_stable_module, label_of
from fxstack_capture.sources import Globals, InstanceDict, Source, pinned
from fxstack_capture.trace.class_recipes import Recipes
from fxstack_capture.trace.effects import Effect
from fxstack_capture.trace.lazy_dict import ABSENT, LazyDict
from fxstack_capture.trace.object_records import Parts, ProxiedCell
from fxstack_capture.trace.registry import NEW_CLASS_MARK, Registry
from fxstack_capture.trace.state import Trace


class ObjectModel:
    """Implement ``trace.state.Objects``."""

    def __init__(self, trace: Trace) -> None:
        self.trace = trace
        self.registry = Registry()
        self.classes = ClassReads(self)
        self.distinctions = Distinctions(self)
        self.addresses = Addresses(self)
        self.recreated = RecreatedFunctions(self)
        self.draws = Draws(self)
        self.append_only = AppendOnlyLists(self)
        self.iterators = ConsumedIterators(self)
        self.contexts = Contexts(self)
        self.plans: dict[tuple[type, str], Any] = {}
        self.lazy: dict[int, LazyDict] = {}
        """Incomplete dictionaries by id of the proxy dictionary."""
        self.dicts: dict[int, LazyDict] = {}
        """All lazily read dictionaries by id of the proxy dictionary."""
        self.instances: dict[int, LazyDict] = {}
        """States of instance dictionaries by id of the proxy instance."""
        self.slots: dict[int, dict[Any, Any]] = {}
        """The contents of the slots of proxies at the first read: by id of the proxy, then by descriptor."""
        self.namespaces: dict[int, LazyDict] = {}
        """States of module namespaces by id of the real dictionary."""
        self.cells: dict[int, ProxiedCell] = {}
        """Proxied cells by id of the proxy cell."""
        self.parts: dict[int, Parts] = {}
        self._made_at: dict[int, int] = {}
        self.recipes = Recipes()
        self.root_globals: dict[str, Any] | None = None
        """The globals of the root frame. Another function may have its code, and globals of its own."""
        self.opaque: set[int] = set()
        self.guarded_by_repr: set[int] = set()
        """Ids of pre-existing values that are guarded by their text instead of their identity."""
        self.weak_proxies: dict[int, Any] = {}
        """The proxy of the referent by the id of the weak proxy that the trace made of it."""
        self.context: dict[ContextVar[Any], Any] = {}
        """The values that the program wrote to context variables."""
        self.tokens: dict[int, tuple[Token[Any], Any]] = {}
        """The result of ``ContextVar.set`` and the value before, by the id of the result."""
        self.cache_keys: dict[Any, Any] = {}
        """One key object for all equal keys of a ``functools.lru_cache``, by (id of the cache, key)."""
        self.reads: list[tuple[Any, Any]] | None = None
        """If not None, each read of an attribute, global or cell: the holder and the name."""
        self.deferred: list[Effect] = []
        """Calls that the replacement code makes when the frame ends."""
        self.contents: dict[int, tuple[Any, ...]] = {}
        """The items of eagerly copied containers when they were wrapped, by id of the proxy."""
        self.set_orders: dict[int, tuple[Any, ...]] = {}
        """The members of sets of objects in the order of the original, by id of the proxy.

        The hashes of the proxies do not give this order.
        """

    # --- wrapping ----------------------------------------------------------------------------

    def enter(self, obj: object, source: Source) -> Any:
        entry = self.registry.by_original.get(id(obj))
        if entry is None:
            return wrapping.enter(self, obj, source)
        if entry.source is not source and entry.source != source:
            varies = obj in self.recreated or id(obj) in self.guarded_by_repr or obj in self.contexts
            if entry.proxy is entry.original and not varies:
                self.trace.guard(source, IdentityIs(obj, id(obj)))
            else:
                self.trace.guard(source, SameObject(entry.source))
        if entry.proxy in self.append_only:
            self.append_only.expand(entry.proxy)
        return entry.proxy

    def enter_from(self, obj: object, source: Source, stable: bool) -> Any:
        """Wrap a member of a namespace. A definition of a stable module gets a source of its own."""
        if stable and wrapping.is_definition(obj) and is_stable(obj):
            self.trace.guard(source, IdentityIs(obj, id(obj)))
            return self.enter_as_itself(obj, pinned(obj, label_of(obj)))
        return self.enter(obj, source)

    def enter_as_itself(self, obj: object, source: Source) -> Any:
        """Register ``obj`` as its own proxy. Existing guards already imply the identity of ``obj``."""
        if id(obj) not in self.registry.by_original:
            self.registry.add(obj, obj, source)
        return obj

    def enter_constant(self, obj: object, source: Source) -> Any:
        """Wrap a number as a constant. Such a number never becomes dynamic."""
        self.trace.guard(source, Equals(obj))
        return obj

    def source_of(self, obj: object) -> Source | None:
        entry = self.registry.by_proxy.get(id(obj))
        return None if entry is None else entry.source

    def original_of(self, obj: object) -> Any:
        entry = self.registry.by_proxy.get(id(obj))
        return obj if entry is None else entry.original

    def is_preexisting(self, obj: object) -> bool:
        return id(obj) in self.registry.by_proxy

    def note_new(self, obj: object) -> None:
        self.registry.new[id(obj)] = obj
        if isinstance(obj, type):
            self._made_at[id(obj)] = self.trace.interp.root_step

    def note_answers(self, kind: type, classes: object) -> None:
        abstract_classes.note_answers(self, kind, classes)

    def made_at(self, obj: object) -> int | None:
        """Return the step of the root frame in which the program made a class."""
        return self._made_at.get(id(obj))

    def is_new(self, obj: object) -> bool:
        """Whether the program made ``obj`` during the trace."""
        return id(obj) in self.registry.new or (
            isinstance(obj, type) and NEW_CLASS_MARK in type.__dict__["__dict__"].__get__(obj)
        )

    # --- lazy dictionaries -------------------------------------------------------------------

    def add_dict(self, state: LazyDict) -> LazyDict:
        self.dicts[id(state.proxy)] = self.lazy[id(state.proxy)] = state
        return state

    def expanded(self, state: LazyDict) -> None:
        self.lazy.pop(id(state.proxy), None)

    def expand(self, obj: Any) -> None:
        state = self.lazy.get(id(obj))
        if state is not None:
            state.expand()
            return
        instance = self.instances.get(id(obj))
        if instance is not None:
            instance.expand()
        if id(obj) in self.slots:
            descriptors.expand_slots(self, obj)
        if obj in self.append_only:
            self.append_only.expand(obj)

    def namespace(self, namespace: dict[str, object]) -> LazyDict:
        """Return the state of a module's or function's globals, for the real dictionary or its proxy."""
        state = self.namespaces.get(id(namespace))
        if state is not None:
            return state
        if id(namespace) in self.dicts:
            return self.dicts[id(namespace)]
        entry = self.registry.by_original.get(id(namespace))
        if entry is not None:
            return self.dicts[id(entry.proxy)]
        name = namespace.get("__name__", "?")
        source = pinned(namespace, f"globals of {name}")
        if namespace is self.root_globals:
            self.trace.guard(Globals(), IdentityIs(namespace, id(namespace)))
        state = LazyDict(self, namespace, {}, source, stable=is_stable_module(name), uniform=True)
        self.registry.add(namespace, state.proxy, source)
        self.namespaces[id(namespace)] = state
        return self.add_dict(state)

    def set_order(self, proxy: Any) -> tuple[Any, ...] | None:
        """Return the members of a wrapped set in the iteration order of the original set.

        Return None if any order is correct.
        """
        order = self.set_orders.get(id(proxy))
        if order is None:
            return None
        if len(order) != len(proxy) or any(
            ours is not theirs for ours, theirs in zip(self.contents[id(proxy)], proxy, strict=True)
        ):
            raise graph_break(
                "unsupported-object", "iteration over a set of objects that the program changed"
            )
        return order

    def own_dict(self, obj: object) -> Callable[[str], Any]:
        """Return a reader of an object's instance dictionary. The reader maps a name to a value or ABSENT."""
        state = self.instances.get(id(obj))
        if state is not None:
            return state.get
        own = descriptors.raw_dict(obj)
        return lambda name: own.get(name, ABSENT)

    def dict_get(self, mapping: dict[Any, Any], key: object) -> Any:
        """Return the value of a string key of a dictionary of the trace, or ABSENT."""
        state = self.lazy.get(id(mapping))
        return mapping.get(key, ABSENT) if state is None else state.get(key)

    def bind(self, raw: object, obj: object) -> Any:
        """Bind a raw class attribute to ``obj``, as an attribute load does."""
        return descriptors.bind(self, raw, obj, type(obj))

    def instance_dict(self, obj: object) -> LazyDict | None:
        return self.instances.get(id(obj))

    def add_instance(self, proxy: object, original_dict: dict[str, Any], source: Source) -> None:
        shared = self.registry.by_original.get(id(original_dict))
        if shared is not None:  # another object has the same dictionary
            self.trace.guard(InstanceDict(source), SameObject(shared.source))
            dict_descriptor(type(proxy)).__set__(proxy, shared.proxy)
            self.instances[id(proxy)] = self.dicts[id(shared.proxy)]
            return
        contents = descriptors.raw_dict(proxy)
        state = LazyDict(self, original_dict, contents, InstanceDict(source), uniform=True)
        self.instances[id(proxy)] = state
        self.registry.add(original_dict, contents, state.source)
        self.add_dict(state)

    # --- attributes --------------------------------------------------------------------------

    def load_attr(self, obj: object, name: str) -> Any:
        if self.reads is not None:
            self.reads.append((obj, name))
        try:
            return self._load_attr(obj, name)
        except AttributeError as error:
            if error.name is None and error.obj is None:  # as CPython does, also for errors of getters
                error.name, error.obj = name, obj
            raise

    def _load_attr(self, obj: object, name: str) -> Any:
        loader = attributes.LOADERS.get(type(obj))
        if loader is not None:
            return loader(self, obj, name)
        if isinstance(obj, torch.Tensor):
            return self.trace.torch.load_attr(obj, name)
        if name == "__dict__" and issubclass(type(obj), threading.local):
            return attributes.load_thread_local(self, obj, name)
        return attributes.load(self, obj, name)

    def load_special(self, obj: object, name: str) -> Any:
        raw = self.classes.lookup(type(obj), name)
        if raw is ABSENT:
            raise AttributeError(name)
        return self.bind(raw, obj)

    def store_attr(self, obj: object, name: str, value: object) -> None:
        stores.store(self, obj, name, value)

    def delete_attr(self, obj: object, name: str) -> None:
        stores.delete(self, obj, name)

    # --- globals -----------------------------------------------------------------------------

    def load_global(self, namespace: dict[str, object], builtins: dict[str, object], name: str) -> Any:
        state = self.namespaces.get(id(namespace)) or self.namespace(namespace)
        if self.reads is not None:
            self.reads.append((state.original, name))
        value = state.proxy.get(name, ABSENT)
        if value is not ABSENT:
            return value
        value = state.get(name)
        if value is not ABSENT:
            return value
        state = self.namespaces.get(id(builtins)) or self.namespace(builtins)
        value = state.get(name)
        if value is ABSENT:
            raise NameError(f"name '{name}' is not defined", name=name)
        return value

    def store_global(self, namespace: dict[str, object], name: str, value: object) -> None:
        self.namespace(namespace).put(name, value)

    def delete_global(self, namespace: dict[str, object], name: str) -> None:
        if not self.namespace(namespace).remove(name):
            raise NameError(f"name '{name}' is not defined", name=name)

    def has_other_keys(self, mapping: dict[Any, Any]) -> bool:
        """Whether a dictionary from outside will have other keys, or another key order, after the frame."""
        entry: Any = self.registry.by_proxy.get(id(mapping))
        if entry is None:
            return False
        now, before = dict.__iter__(mapping), dict.__iter__(entry.original)
        pairs: Any = zip_longest(now, map(self._proxy_of, before), fillvalue=ABSENT)
        return any(a is not b and (type(a), a) != (type(b), b) for a, b in pairs)

    def _proxy_of(self, obj: object) -> object:
        entry = self.registry.by_original.get(id(obj))
        return obj if entry is None else entry.proxy

    # --- functions and cells -----------------------------------------------------------------

    def function_parts(
        self, fn: FunctionType
    ) -> tuple[tuple[object, ...], dict[str, object], tuple[CellType, ...]]:
        found = self.parts.get(id(fn))
        if found is None:
            found = functions.parts(self, fn)
        return found.defaults, found.kwdefaults, found.closure

    def load_cell(self, cell: CellType) -> Any:
        if self.reads is not None:
            self.reads.append((cell, None))
        return functions.load_cell(self, cell)

    def store_cell(self, cell: CellType, value: object) -> None:
        cell.cell_contents = value

    # --- the end -----------------------------------------------------------------------------

    def close(self) -> None:
        """Record the guards that depend on the whole trace."""
        self.classes.close()
        self.distinctions.close()
        self.iterators.close()
        self.contexts.close()
        self.recreated.close()
        self.addresses.close()
