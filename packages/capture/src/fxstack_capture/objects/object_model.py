"""The object model of a trace: wraps objects from outside, and loads and stores their attributes."""

from __future__ import annotations

import threading
from types import CellType, FunctionType
from typing import Any

import torch

from fxstack_capture.guards.records import IdentityIs, SameObject
from fxstack_capture.objects import wrapping
from fxstack_capture.objects.kinds import append_only_lists, consumed_iterators, contexts, functions
from fxstack_capture.objects.protocols import descriptors, stores
from fxstack_capture.objects.protocols import loads as attributes
from fxstack_capture.sources import Source, pinned
from fxstack_capture.trace.late_guards.stable_modules import is_stable, label_of
from fxstack_capture.trace.lazy_dict import ABSENT
from fxstack_capture.trace.state import Objects


class ObjectModel(Objects):
    """The object model of one trace.

    The interpreter and the rules call its methods for each read and write of an object.
    ``trace.state.Objects`` documents the methods.
    """

    # --- wrapping ----------------------------------------------------------------------------

    def enter(self, obj: object, source: Source) -> Any:
        entry = self.registry.by_original.get(id(obj))
        if entry is None:
            return wrapping.enter(self, obj, source)
        if entry.source is not source and entry.source != source:
            # If the object differs between calls, a guard on its identity would fail in each call. Guard
            # instead that both sources give the same object.
            varies = obj in self.recreated or id(obj) in self.guarded_by_repr or id(obj) in self.contexts
            if entry.proxy is entry.original and not varies:
                self.trace.guard(source, IdentityIs(obj, id(obj)))
            else:
                self.trace.guard(source, SameObject(entry.source))
        append_only_lists.expand(self, entry.proxy)
        return entry.proxy

    def enter_from(self, obj: object, source: Source, stable: bool) -> Any:
        if stable and wrapping.is_definition(obj) and is_stable(obj):
            self.trace.guard(source, IdentityIs(obj, id(obj)))
            return self.registry.add_itself(obj, pinned(obj, label_of(obj)))
        return self.enter(obj, source)

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
        append_only_lists.expand(self, obj)

    def bind(self, raw: object, obj: object) -> Any:
        return descriptors.bind(self, raw, obj, type(obj))

    # --- attributes --------------------------------------------------------------------------

    def load_attr(self, obj: object, name: str) -> Any:
        if self.reads is not None:
            self.reads.append((obj, name))
        try:
            return self._load_attr(obj, name)
        except AttributeError as error:
            # Set ``name`` and ``obj`` of the error, as CPython does. An error that a getter raises gets them too.
            if error.name is None and error.obj is None:
                error.name, error.obj = name, obj
            raise

    def _load_attr(self, obj: object, name: str) -> Any:
        """Load an attribute through the loader for the type of ``obj`` (``loads.LOADERS``)."""
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
        stores.store(self, obj, name, ABSENT)

    # --- functions and cells -----------------------------------------------------------------

    def function_parts(
        self, fn: FunctionType
    ) -> tuple[tuple[object, ...], dict[str, object], tuple[CellType, ...]]:
        parts = self.parts.get(id(fn))
        if parts is None:
            parts = functions.parts(self, fn)
        return parts.defaults, parts.kwdefaults, parts.closure

    def load_cell(self, cell: CellType) -> Any:
        if self.reads is not None:
            self.reads.append((cell, None))
        return functions.load_cell(self, cell)

    def close(self) -> None:
        self.classes.close()
        self.distinctions.close()
        consumed_iterators.close(self)
        contexts.close(self)
        self.recreated.close(self.trace.guards)
        self.addresses.close(self.trace.guards)
