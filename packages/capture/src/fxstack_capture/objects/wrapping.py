"""Wrapping of pre-existing objects: a table by exact type, then rules by kind of class.

A constant is guarded by value or identity and is its own proxy. A definition (function, class, module) is
guarded by identity. A container is copied. The proxy of any other object is a bare instance of its class,
filled by the program's reads.
"""

from __future__ import annotations

import collections
import dataclasses
import datetime as dt
import decimal
import enum
import functools
import gc
import operator
import random
import re
import threading
import types
import warnings
import weakref
from contextvars import ContextVar
from typing import Any

import numpy as np
import torch

from fxstack_capture import native, torch_compat
from fxstack_capture.bytecode.units import units
from fxstack_capture.guards.records import Equals, IdentityIs, RangeIs, TypeIs
from fxstack_capture.kernels.launching import is_kernel_class
from fxstack_capture.native.class_flags import is_heap_type
from fxstack_capture.numpy_side.scalar import Scalar
from fxstack_capture.objects.instances import slots
from fxstack_capture.objects.kinds import (
    append_only_lists,
    consumed_iterators,
    containers,
    contexts,
    hidden_references,
    user_objects,
)
from fxstack_capture.objects.kinds.functions import proxy_cell
from fxstack_capture.objects.kinds.user_objects import Handler
from fxstack_capture.sources import BuiltinAttr, Converted, Item, Local, Source
from fxstack_capture.torch_compat import CustomOpDef
from fxstack_capture.trace.constants import BUILTIN_METHOD, DESCRIPTOR_TYPES, OF_THE_INTERPRETER
from fxstack_capture.trace.numpy_types import DTYPE_CLASSES, SCALAR_TYPES, TORCH_OF
from fxstack_capture.trace.state import Objects
from fxstack_interchange.bytecode import Kind, kind_of


def enter(objects: Objects, obj: object, source: Source) -> Any:
    """Wrap an object at its first read, and return the proxy.

    For later reads, ``ObjectModel.enter`` finds this proxy.
    """
    handler = HANDLERS.get(type(obj))
    if handler is None:
        handler = _handler_of_kind(obj)
    return handler(objects, obj, source)


def is_definition(obj: Any) -> bool:
    """Whether ``obj`` is a function, class or module. A stable module does not rebind such a name."""
    handler = HANDLERS.get(type(obj))
    if handler is builtin_function:
        return _is_static(obj.__self__)
    return handler in (identity, function) or (handler is None and isinstance(obj, (type, types.ModuleType)))


# --- constants -----------------------------------------------------------------------------------


def identity(objects: Objects, obj: object, source: Source) -> Any:
    """Guard the identity of a definition, which determines its behaviour. The definition is its own proxy."""
    objects.trace.guard(source, IdentityIs(obj, id(obj)))
    return objects.registry.add_itself(obj, source)


def member(objects: Objects, obj: enum.Enum, source: Source) -> Any:
    """Wrap a member of an enumeration as itself. The guards demand its class and identity."""
    objects.trace.guard(source, TypeIs(type(obj)))
    return identity(objects, obj, source)


def function(objects: Objects, obj: types.FunctionType, source: Source) -> Any:
    """Guard a function by identity. A recreated function is guarded by its code instead."""
    if objects.recreated.enter(obj, source, objects.trace.torch.history):
        return objects.registry.add_itself(obj, source)
    return identity(objects, obj, source)


def singleton(objects: Objects, obj: object, source: Source) -> Any:
    """Guard the identity of a constant that exists once in the process, such as None.

    Such a constant needs no entry in the registry.
    """
    objects.trace.guard(source, IdentityIs(obj, id(obj)))
    return obj


def equal(objects: Objects, obj: object, source: Source) -> Any:
    """Guard a constant by its value."""
    objects.trace.guard(source, Equals(obj))
    return obj


def number(objects: Objects, obj: Any, source: Source) -> Any:
    """Wrap an int or float: a constant guarded by value, or a symbol."""
    return objects.trace.torch.enter_number(obj, source)


def range_(objects: Objects, obj: range, source: Source) -> range:
    """Guard the three numbers of a range, which is a constant."""
    objects.trace.guard(source, RangeIs(obj.start, obj.stop, obj.step))
    return obj


# --- callables that hold objects -----------------------------------------------------------------


def bound_method(objects: Objects, obj: types.MethodType, source: Source) -> Any:
    """Wrap a method object with its function and instance. Each load of a method makes a new object."""
    objects.trace.guard(source, TypeIs(type(obj)))
    fn = objects.enter(obj.__func__, BuiltinAttr(source, "__func__"))
    owner = objects.enter(obj.__self__, BuiltinAttr(source, "__self__"))
    return objects.registry.add(obj, types.MethodType(fn, owner), source).proxy


def cell(objects: Objects, obj: types.CellType, source: Source) -> Any:
    """Wrap a cell that the program holds as an object. The first load wraps its content."""
    objects.trace.guard(source, TypeIs(types.CellType))
    return proxy_cell(objects, obj, source)


def builtin_function(objects: Objects, obj: Any, source: Source) -> Any:
    """Wrap a C function or a bound C method. The object of a bound method is wrapped as well."""
    owner = obj.__self__
    if _is_static(owner):
        return identity(objects, obj, source)
    objects.trace.guard(source, TypeIs(type(obj)))
    owner_source = BuiltinAttr(source, "__self__")
    # A builtin method on the stack at a graph break is called next. ``append`` does not read the list.
    append_only = obj.__name__ in append_only_lists.APPEND_METHODS and _is_waiting(source)
    proxy = append_only_lists.enter(objects, owner, owner_source) if append_only else None
    if proxy is None:
        # A C method of a number reads the value of the number.
        proxy = objects.trace.torch.specialize(objects.enter(owner, owner_source))
    objects.trace.guard(BuiltinAttr(source, "__name__"), Equals(obj.__name__))
    if proxy is owner:
        return obj
    method = _c_method(owner, obj)
    method_of_proxy = getattr(proxy, obj.__name__) if method is None else method.__get__(proxy)
    return objects.registry.add(obj, method_of_proxy, source).proxy


def _c_method(owner: object, bound: Any) -> Any:
    """Return the C descriptor of ``bound``, a builtin method of ``owner``, or None if no class has one."""
    # An attribute may hide the descriptor, so ``getattr(type, name)`` may find another object.
    for cls in type(owner).__mro__:
        descriptor = cls.__dict__.get(bound.__name__)
        if not isinstance(descriptor, (types.MethodDescriptorType, types.WrapperDescriptorType)):
            continue
        if descriptor.__get__(owner) == bound:
            return descriptor
    return None


def _is_waiting(source: Source) -> bool:
    """Whether the value at ``source`` was on the stack at a graph break. A callable there is called next."""
    return isinstance(source, Local) and source.local.startswith((".stack", ".inner"))


def _is_static(owner: object) -> bool:
    """Whether a C function with ``owner`` as ``__self__`` belongs to a module or class, not to an object."""
    return (
        owner is None
        or isinstance(owner, (types.ModuleType, type))
        # The ``__self__`` of a pybind11 function is a record of pybind11.
        or type(owner).__module__ == "pybind11_builtins"
    )


def partial(objects: Objects, obj: functools.partial[Any], source: Source) -> Any:
    """Wrap a ``functools.partial`` with its function and arguments."""
    objects.trace.guard(source, TypeIs(type(obj)))
    fn, args, keywords = (
        user_objects.enter_member(objects, obj, source, functools.partial, name)
        for name in ("func", "args", "keywords")
    )
    objects.expand(keywords)
    proxy = functools.partial.__new__(type(obj), fn)
    vars(functools.partial)["__setstate__"](proxy, (fn, args, keywords, None))
    return user_objects.register(objects, obj, proxy, source)


def weak_reference(objects: Objects, obj: weakref.ref[Any], source: Source) -> Any:
    """Wrap a weak reference. The proxy is a weak reference to the proxy of the referent."""
    target = obj()
    objects.trace.guard(source, IdentityIs(obj, id(obj)))
    if target is None:
        return objects.registry.add_itself(obj, source)
    entry = objects.registry.by_original.get(id(target))
    proxy = entry.proxy if entry is not None else objects.enter(target, Converted(source, _REFERENT))
    if proxy is target:
        return objects.registry.add_itself(obj, source)
    return objects.registry.add(obj, weakref.ref(proxy), source).proxy


def weak_proxy(objects: Objects, obj: Any, source: Source) -> Any:
    """Wrap a weak proxy without a callback. The proxy is a weak proxy of the proxy of the referent."""
    try:
        target = obj.__sizeof__.__self__
    except (AttributeError, ReferenceError):
        return opaque(objects, obj, source)
    # For each object, CPython has at most one weak proxy without a callback.
    if isinstance(target, torch.Tensor) or weakref.proxy(target) is not obj:
        return opaque(objects, obj, source)
    objects.trace.guard(source, IdentityIs(obj, id(obj)))
    proxy = objects.enter(target, BuiltinAttr(BuiltinAttr(source, "__sizeof__"), "__self__"))
    proxy_of_proxy = weakref.proxy(proxy)
    objects.weak_proxies[id(proxy_of_proxy)] = proxy
    return objects.registry.add(obj, proxy_of_proxy, source).proxy


_REFERENT: Any = operator.call
"""Reads the referent of a weak reference. A guard that contained the referent would keep it alive."""


# --- kinds ---------------------------------------------------------------------------------------


def tensor(objects: Objects, obj: torch.Tensor, source: Source) -> Any:
    """Wrap a tensor as a fake. (The torch side itself registers a tensor of a wrapper subclass.)"""
    proxy = objects.trace.torch.enter_tensor(obj, source)
    if id(obj) not in objects.registry.by_original:
        objects.registry.add(obj, proxy, source)
    return proxy


_REFERENTS: Any = gc.get_referents
_FROM_NUMPY: Any = torch.from_numpy
_ITEM: Any = np.generic.item
_REPR: Any = repr
"""Functions in ``Converted`` sources. Guards apply them to the object of the call."""
_KNOWN_ZONES = (None, dt.UTC)
"""Time zones whose code is not the program's. Formatting or comparing a date may call its time zone."""


def array(objects: Objects, obj: np.ndarray[Any, Any], source: Source) -> Any:
    """Wrap a NumPy array as a tensor that shares its memory. Read-only arrays keep NumPy's rules."""
    if obj.dtype not in TORCH_OF or min(obj.strides, default=0) < 0:
        return deferred(objects, obj, source)
    objects.trace.guard(source, TypeIs(np.ndarray))
    writeable = BuiltinAttr(BuiltinAttr(source, "flags"), "writeable")
    objects.trace.guard(writeable, Equals(obj.flags.writeable))
    with warnings.catch_warnings():
        # At the first read-only array of the process, torch warns.
        warnings.simplefilter("ignore")
        real = torch.from_numpy(obj)
    tensor = objects.trace.torch.enter_tensor(real, Converted(source, _FROM_NUMPY))
    proxy = objects.trace.torch.arrays.from_tensor(tensor, writeable=obj.flags.writeable)
    return objects.registry.add(obj, proxy, source).proxy


def scalar(objects: Objects, obj: np.generic, source: Source) -> Any:
    """Wrap a NumPy scalar. It is a constant, or its number is dynamic (``Scalar``)."""
    objects.trace.guard(source, TypeIs(type(obj)))
    value = obj.item()
    if type(value) not in (int, float):
        objects.trace.guard(Converted(source, _ITEM), Equals(value))
        return obj
    number = objects.trace.torch.enter_number(value, Converted(source, _ITEM))
    if number is value:
        return obj
    objects.trace.torch.arrays.has_scalars = True
    return objects.registry.add(obj, Scalar(objects.trace, number, obj), source).proxy


def opaque(objects: Objects, obj: object, source: Source) -> Any:
    """Wrap an object whose state is in compiled code. Any use other than passing it on breaks the graph."""
    if hasattr(type(obj), "__next__") or objects.trace.torch.history.is_another(source, obj):
        # Each call has a new object. A guard on an iterator would keep its items alive.
        return deferred(objects, obj, source)
    objects.opaque.add(id(obj))
    return identity(objects, obj, source)


def guarded_by_repr(objects: Objects, obj: object, source: Source) -> Any:
    """Wrap a date or a time span. Such an object is immutable, and an equal text implies equal behaviour."""
    # a time zone of another class may run code of the program
    if getattr(obj, "tzinfo", None) not in _KNOWN_ZONES:
        return opaque(objects, obj, source)
    objects.trace.guard(source, TypeIs(type(obj)))
    objects.trace.guard(Converted(source, _REPR), Equals(repr(obj)))
    objects.guarded_by_repr.add(id(obj))
    return objects.registry.add_itself(obj, source)


def decimal_number(objects: Objects, obj: decimal.Decimal, source: Source) -> Any:
    """Wrap a decimal number. Arithmetic breaks the graph, because it reads and writes the thread's context."""
    objects.opaque.add(id(obj))
    return guarded_by_repr(objects, obj, source)


def deferred(objects: Objects, obj: object, source: Source) -> Any:
    """Wrap an object as ``opaque`` does, but guard only its class, because each call has a new object."""
    objects.opaque.add(id(obj))
    objects.trace.guard(source, TypeIs(type(obj)))
    return objects.registry.add_itself(obj, source)


def iterator(objects: Objects, obj: object, source: Source) -> Any:
    """Wrap a partially consumed iterator of CPython's own types. The iterator is its own proxy."""
    # Each call has a new iterator. Iterators of known types can be read without advancing them.
    entered = deferred(objects, obj, source)
    consumed_iterators.add(objects, obj, source)
    return entered


def mapping_proxy(objects: Objects, obj: object, source: Source) -> Any:
    """Wrap a read-only view of a dictionary, and the dictionary. The view of a class namespace is opaque."""
    inner = next(iter(gc.get_referents(obj)), None)
    if not isinstance(inner, dict) or dict.__contains__(inner, "__module__"):
        return opaque(objects, obj, source)
    objects.trace.guard(source, TypeIs(types.MappingProxyType))
    proxy = objects.enter(inner, Item(Converted(source, _REFERENTS), 0))
    objects.expand(proxy)
    return objects.registry.add(obj, types.MappingProxyType(proxy), source).proxy


def thread_local(objects: Objects, obj: object, source: Source) -> Any:
    """Wrap a ``threading.local`` as itself. The attributes of the running thread are read one by one."""
    identity(objects, obj, source)
    objects.add_instance_dict(obj, obj.__dict__, {}, BuiltinAttr(source, "__dict__"))
    return obj


def thread_local_of_class(objects: Objects, obj: object, source: Source) -> Any:
    """Wrap an instance of a subclass of ``threading.local``.

    A guard that reads the object in a new thread runs the ``__init__`` of the class. Therefore the object is
    opaque if the class has code for attribute access, or an ``__init__`` that does more than set attributes
    to constants.
    """
    cls = type(obj)
    lookup = objects.classes.lookup
    inherited = all(lookup(cls, name) is getattr(threading.local, name) for name in _OF_LOCALS)
    initial = lookup(cls, "__init__")
    is_harmless = initial is threading.local.__init__ or _only_sets_constants(initial)
    return (thread_local if inherited and is_harmless and not slots(cls) else opaque)(objects, obj, source)


_OF_LOCALS = ("__new__", "__getattribute__", "__setattr__", "__delattr__")
"""Methods that a supported subclass of ``threading.local`` inherits unchanged."""


def _only_sets_constants(function: object) -> bool:
    """Whether ``function``, an ``__init__`` without arguments, only stores constants and empty containers."""
    if type(function) is not types.FunctionType or function.__code__.co_argcount != 1:
        return False
    kinds = [kind_of(name) for _, _, _, name, _ in units(function.__code__)]
    return all(kind and kind in _CONSTANT_STORES for kind in kinds)


_CONSTANT_STORES = (
    Kind.INERT
    | Kind.LOADS_CONSTANT
    | Kind.BUILDS
    | Kind.COPIES
    | Kind.POPS
    | Kind.READS_LOCAL
    | Kind.BINDS_ATTRIBUTE
    | Kind.STARTS
    | Kind.RETURNS
)
"""The kinds of instructions in an ``__init__`` that only sets attributes."""

_WORK = (torch.distributed.Work,) if torch.distributed.is_available() else ()
"""The class of the handles of running collectives. Each call has a new object."""

HANDLERS: dict[type, Handler] = {
    type(None): singleton,
    bool: singleton,
    type(Ellipsis): singleton,
    type(NotImplemented): singleton,
    str: equal,
    bytes: equal,
    complex: equal,
    int: number,
    float: number,
    range: range_,
    torch.Generator: deferred,
    **dict.fromkeys(_WORK, deferred),
    torch.dtype: singleton,
    **dict.fromkeys(OF_THE_INTERPRETER, singleton),
    torch.layout: singleton,
    torch.memory_format: singleton,
    torch.qscheme: singleton,
    torch.device: equal,
    **dict.fromkeys(torch_compat.PYBIND_ENUMS, identity),
    types.FunctionType: function,
    types.CodeType: identity,
    types.ModuleType: identity,
    type: identity,
    **dict.fromkeys(DESCRIPTOR_TYPES, identity),
    types.GenericAlias: identity,
    types.UnionType: identity,
    staticmethod: identity,
    classmethod: identity,
    property: identity,
    functools.cached_property: identity,
    functools.singledispatchmethod: identity,
    functools.partialmethod: identity,
    type(functools.lru_cache(lambda: None)): identity,
    re.Pattern: identity,
    re.Match: identity,
    ContextVar: identity,
    type(dataclasses.MISSING): identity,
    type(vars(dataclasses)["_FIELD"]): identity,
    type(vars(dataclasses)["_HAS_DEFAULT_FACTORY"]): identity,
    type(dataclasses.KW_ONLY): identity,
    np.ndarray: array,
    np.ufunc: identity,
    type(np.sum): identity,
    **dict.fromkeys(SCALAR_TYPES, scalar),
    **dict.fromkeys(DTYPE_CLASSES, singleton),
    types.CellType: cell,
    native.Optimized: identity,
    types.MethodType: bound_method,
    types.BuiltinFunctionType: builtin_function,
    BUILTIN_METHOD: builtin_function,
    types.MethodWrapperType: builtin_function,
    functools.partial: partial,
    weakref.ref: weak_reference,
    weakref.ProxyType: weak_proxy,
    tuple: containers.tuple_,
    list: containers.list_,
    dict: containers.dict_,
    set: containers.set_,
    frozenset: containers.frozenset_,
    collections.deque: containers.deque,
    slice: containers.slice_,
    bytearray: containers.bytearray_,
    types.MappingProxyType: mapping_proxy,
    threading.local: thread_local,
    random.Random: deferred,
    **hidden_references.HANDLERS,
    types.TracebackType: deferred,
    types.FrameType: deferred,
    torch.Size: containers.size,
    **dict.fromkeys((dt.date, dt.datetime, dt.time, dt.timedelta), guarded_by_repr),
    type(np.empty(0).flags): guarded_by_repr,  # NumPy makes a new object for each read
    decimal.Decimal: decimal_number,
}
"""Maps exact types to functions that wrap their instances. ``_handler_of_kind`` handles all other types."""


_OPERATORS = (
    torch_compat.OpOverload,
    torch_compat.OpOverloadPacket,
    torch_compat.HigherOrderOperator,
    CustomOpDef,
)
"""Classes of torch's operators, which are definitions."""


def _handler_of_kind(obj: object) -> Handler:
    """Return the function that wraps ``obj``, whose type is not in ``HANDLERS``."""
    if isinstance(obj, torch.Tensor):
        return tensor
    cls = type(obj)
    if isinstance(obj, enum.Enum):
        return member
    if issubclass(cls, (type, types.ModuleType)):
        return identity
    if issubclass(cls, _OPERATORS) or is_kernel_class(cls):
        return identity
    if issubclass(cls, functools.partial):
        return partial
    if issubclass(cls, threading.local):
        return thread_local_of_class
    if issubclass(cls, contexts.CLASS):
        return contexts.enter
    return user_objects.handler(cls) or (iterator if _is_native_iterator(cls) else opaque)


def _is_native_iterator(cls: type) -> bool:
    """Whether ``cls`` is an iterator type of CPython. The program cannot change such a class."""
    return hasattr(cls, "__next__") and not is_heap_type(cls)
