"""CPython's attribute protocol on objects of the trace: stores and deletes.

No store writes to an object from outside. A store to an instance or module changes its lazy dictionary. A
store to a class changes its overlay (a table of new attributes). A store to a slot changes the proxy.
"""

from __future__ import annotations

import types
import weakref
from contextlib import suppress
from typing import Any

import torch

from fxstack_capture.breaks import graph_break
from fxstack_capture.callers import calls_program, plainly
from fxstack_capture.native.class_flags import is_immutable
from fxstack_capture.numpy_side.array import Array
from fxstack_capture.numpy_side.scalar import Scalar
from fxstack_capture.objects.kinds import contexts
from fxstack_capture.objects.protocols.descriptors import get_slot, held, is_own_slot, plan_of, write_target
from fxstack_capture.objects.protocols.loaders import function_dict
from fxstack_capture.trace.constants import PLAIN_TYPES
from fxstack_capture.trace.lazy_dict import ABSENT, LazyDict
from fxstack_capture.trace.state import Objects

_object_setattr = object.__setattr__
_object_delattr = object.__delattr__
_DEFERRED = object()
"""Stands for the original content of a slot that the program wrote before reading it. No value is identical
to it.
"""


@calls_program
def store(objects: Objects, obj: Any, name: str, value: object) -> None:
    """Store an attribute by CPython's full protocol, or delete the attribute if ``value`` is ABSENT. Break
    the graph for an attribute of an ndarray or weak proxy, and for a deletion from a tensor.

    ``Objects.store_attr`` and ``Objects.delete_attr`` call this function.
    """
    obj = objects.weak_proxies.get(id(obj), obj)
    cls = type(obj)
    deletes = value is ABSENT
    action = f"deleting {name}" if deletes else f"assignment to {name}"
    if isinstance(obj, torch.Tensor):
        if deletes:
            raise graph_break("unsupported-tensor", f"deleting attribute {name} of a tensor")
        objects.trace.torch.store_attr(obj, name, value)
        return
    if cls is Array and not deletes:
        raise graph_break("unsupported-object", f"assignment to ndarray.{name}")
    if cls in weakref.ProxyTypes:  # a weak proxy made during the trace
        raise graph_break("unsupported-object", f"{action} through a weak reference")
    method, arguments = ("__delattr__", (name,)) if deletes else ("__setattr__", (name, value))
    if cls is Scalar:
        getattr(obj.settle(), method)(*arguments)  # raises CPython's error
    if cls in PLAIN_TYPES:
        getattr(objects.trace.torch.specialize(obj), method)(*arguments)  # raises CPython's error
    custom, _, _ = plan_of(objects, cls, method)
    if type(custom) is types.FunctionType or getattr(custom, "__name__", "") != method:
        objects.trace.calls.call(custom, (obj, *arguments), {})
        return
    generic_store(objects, obj, name, value)


@calls_program
def generic_store(objects: Objects, obj: Any, name: str, value: object) -> None:
    """Store as ``object.__setattr__`` does, or delete if ``value`` is ABSENT. Break the graph for an object
    from outside whose state is unknown.

    ``obj`` may be of any kind. The rule of ``object.__setattr__`` and ``object.__delattr__`` also calls this
    function.
    """
    if isinstance(obj, type):
        _store_class(objects, obj, name, value)
        return
    cls = type(obj)
    raw = write_target(objects, cls, name)
    if raw is not ABSENT:
        _store_descriptor(objects, raw, obj, name, value)
        return
    if isinstance(obj, types.ModuleType):
        state: LazyDict | None = objects.namespace(obj.__dict__)
    elif cls is types.FunctionType and not objects.is_new(obj) and objects.is_preexisting(obj):
        state = function_dict(objects, obj)
    else:
        state = objects.instances.get(id(obj))
    if state is not None:
        _write(state, obj, name, value)
    elif id(obj) in objects.opaque or objects.is_preexisting(obj):
        raise graph_break("unsupported-object", f"storing attribute {name} of a {cls.__qualname__}")
    elif value is ABSENT:
        _object_delattr(obj, name)
    else:
        _object_setattr(obj, name, value)


def _store_descriptor(objects: Objects, raw: Any, obj: Any, name: str, value: Any) -> None:
    """Pass a write or a deletion to a data descriptor. Raises the real error if the descriptor refuses the
    write.
    """
    kind = type(raw)
    method = "__delete__" if value is ABSENT else "__set__"
    args = (raw, obj) if value is ABSENT else (raw, obj, value)
    # a property or a subclass that inherits the method
    if objects.classes.lookup(kind, method) is vars(property)[method]:
        fn = raw.fdel if value is ABSENT else raw.fset
        if fn is None:
            plainly(getattr(raw, method), args[1:], {})  # raises the real AttributeError
        setter = held(objects, raw, fn, "fdel" if value is ABSENT else "fset")
        objects.trace.calls.call(setter, args[1:], {})
    elif kind is types.MemberDescriptorType:
        _store_slot(objects, raw, obj, value)
    elif kind is types.GetSetDescriptorType:
        _store_getset(objects, raw, obj, value)
    else:
        setter = objects.classes.lookup(kind, method)
        if setter is ABSENT:
            raise AttributeError(method)
        objects.trace.calls.call(setter, args, {})


@calls_program
def _store_slot(objects: Objects, raw: Any, obj: Any, value: Any) -> None:
    """Write or delete a ``__slots__`` member of a proxy or of a new object. Break the graph for a member of a
    C class on an object from outside.

    At the end, ``effect_diff`` compares the slot with its original content, recorded at the first access.
    """
    contents_at_read = objects.slots.get(id(obj))
    if objects.is_preexisting(obj) and not is_own_slot(raw):
        raise graph_break(
            "unsupported-object", f"storing C attribute {raw.__name__} of a {type(obj).__qualname__}"
        )
    if contents_at_read is not None and is_own_slot(raw):
        if value is not ABSENT:
            contents_at_read.setdefault(raw, _DEFERRED)
        elif contents_at_read.get(raw, _DEFERRED) is _DEFERRED:
            _read_slot(objects, raw, obj)
    if value is ABSENT:
        raw.__delete__(obj)
    else:
        raw.__set__(obj, value)


def _read_slot(objects: Objects, raw: Any, obj: Any) -> None:
    """Record the original content of a slot that the program is about to delete. ``effect_diff`` needs the
    content.
    """
    # If the program wrote the slot before deleting it, the original slot may have been empty.
    written = objects.slots[id(obj)].pop(raw, None) is _DEFERRED
    value = raw.__get__(obj) if written else None
    with suppress(AttributeError):
        get_slot(objects, raw, obj, type(obj))
    if written:
        raw.__set__(obj, value)


def _store_getset(objects: Objects, raw: Any, obj: Any, value: Any) -> None:
    """Write an attribute that C code implements, or delete it if ``value`` is ABSENT. Break the graph if an
    object from outside would change.

    ``raw`` is the descriptor of the attribute.
    """
    if id(obj) in objects.contexts:
        contexts.store(objects, raw, obj, value)
    elif objects.is_preexisting(obj):
        if not _is_stored_already(objects, raw, obj, value):
            text = f"storing C attribute {raw.__name__} of a {type(obj).__qualname__}"
            raise graph_break("unsupported-object", text)
    elif value is ABSENT:
        raw.__delete__(obj)
    else:
        raw.__set__(obj, value)


def _is_stored_already(objects: Objects, raw: Any, obj: Any, value: Any) -> bool:
    """Whether the attribute of a function already equals the text ``value``. The store then changes nothing."""
    # Each use of ``functools.total_ordering`` writes the same ``__name__`` to the same functions of
    # functools.
    if type(obj) is not types.FunctionType or type(value) is not str:
        return False
    return type(raw.__get__(obj)) is str and bool(objects.load_attr(obj, raw.__name__) == value)


def _write(state: LazyDict, obj: object, name: str, value: object) -> None:
    """Write to the lazy dictionary of ``obj``, or delete ``name`` if ``value`` is ABSENT.

    Raises AttributeError if ``name`` is to be deleted and is absent.
    """
    if value is not ABSENT:
        state.put(name, value)
    elif not state.remove(name):
        if isinstance(obj, types.ModuleType):
            raise _absent_error(f"module {obj.__name__!r}", obj, name)
        raise _absent_error(f"{type(obj).__name__!r} object", obj, name)


def _absent_error(kind: str, obj: object, name: str) -> AttributeError:
    """Return the error for the deletion of an absent attribute. ``kind`` begins the message: ``"'A' object"``."""
    error = AttributeError(f"{kind} has no attribute {name!r}")
    if _NAMES_DELETED:
        error.name, error.obj = name, obj
    return error


def _names_deleted() -> bool:
    """Whether this version of Python sets ``name`` in the AttributeError for ``del module.absent``."""
    try:
        del types.ModuleType("module").absent
    except AttributeError as error:
        return error.name is not None
    return False


_NAMES_DELETED = _names_deleted()
"""The result of ``_names_deleted`` for the running Python."""


def _store_class(objects: Objects, cls: type, name: str, value: object) -> None:
    """Write a class attribute, or delete it if ``value`` is ABSENT. Break the graph for special names and for
    attributes that the metaclass handles.

    A write to a class from outside goes to the overlay of the class.
    """
    if objects.is_new(cls):
        if value is ABSENT:
            type.__delattr__(cls, name)
        else:
            type.__setattr__(cls, name, value)
        objects.classes.cache.clear()
        objects.classes.plans.clear()
        return
    if is_immutable(cls):
        type.__setattr__(cls, name, value)  # raises CPython's TypeError
    if write_target(objects, type(cls), name) is not ABSENT or (
        name.startswith("__") and name.endswith("__")
    ):
        raise graph_break("unsupported-object", f"storing {name} of the class {cls.__qualname__}")
    if value is ABSENT and name not in cls.__dict__ and name not in objects.classes.overlays.get(cls, {}):
        raise _absent_error(f"type object {cls.__name__!r}", cls, name)
    objects.classes.store(cls, name, value)
