"""CPython's attribute protocol on objects of the trace: loads.

Lookups along the MRO return raw attributes and are guarded for each class
(``trace.late_guards.class_reads``). Instance dictionaries are lazy. The interpreter runs descriptors and
hooks that are written in Python. C descriptors run natively on proxies whose state is complete.
"""

from __future__ import annotations

import builtins
import collections
import functools
import itertools
import random
import threading
import types
import weakref
from collections.abc import Callable
from typing import Any

import numpy as np
import torch

from fxstack_capture.breaks import graph_break
from fxstack_capture.callers import calls_program
from fxstack_capture.guards.records import Equals, HasKey
from fxstack_capture.native.class_flags import is_immutable
from fxstack_capture.numpy_side.array import Array
from fxstack_capture.numpy_side.attributes import load as load_array
from fxstack_capture.numpy_side.scalar import Scalar, item
from fxstack_capture.objects.protocols.descriptors import bind, plan_of, raw_dict_or_none
from fxstack_capture.objects.protocols.loaders import (
    load_class,
    load_function,
    load_method,
    load_module,
    load_super,
)
from fxstack_capture.sources import BuiltinAttr, InstanceAttr, InstanceDict, Source
from fxstack_capture.torch_compat import PYBIND_ENUMS, OpOverloadPacket
from fxstack_capture.trace import numpy_types
from fxstack_capture.trace.constants import BUILTIN_METHOD, DESCRIPTOR_TYPES, PLAIN_TYPES
from fxstack_capture.trace.lazy_dict import ABSENT
from fxstack_capture.trace.state import Objects
from fxstack_interchange.format.literals import LITERAL_TYPES

_ITERABLES: tuple[Any, ...] = ([], (), {}, {}.values(), {}.items(), set(), range(0), "", b"")
_GENERIC_GETATTRIBUTES: frozenset[object] = frozenset(
    cls.__dict__["__getattribute__"]
    for cls in (
        *(v for v in vars(builtins).values() if isinstance(v, type)),
        *(collections.OrderedDict, collections.defaultdict, collections.deque),
        *(types.SimpleNamespace, functools.partial, threading.local),
        *(types.GeneratorType, *map(type, map(iter, _ITERABLES)), type(reversed([]))),
        *(v for v in vars(itertools).values() if isinstance(v, type)),
    )
    if "__getattribute__" in cls.__dict__ and cls not in (type, super)
)
"""The ``__getattribute__`` methods of C types that behave like ``object.__getattribute__``."""


@calls_program
def load(objects: Objects, obj: object, name: str) -> Any:
    """Load an attribute of an object whose exact type is not in ``LOADERS``.

    Raises the real AttributeError. Raises GraphBreak for state of C code that no guard covers.
    """
    cls = type(obj)
    if isinstance(obj, types.ModuleType):
        return load_module(objects, obj, name)
    if isinstance(obj, type):
        return load_class(objects, obj, name)
    if cls is OpOverloadPacket:
        getattr(obj, name, None)  # the first load stores an overload in its packet
    if cls in PYBIND_ENUMS:
        return getattr(obj, name)
    custom, _, _ = plan_of(objects, cls, "__getattribute__")
    if type(custom) is types.FunctionType:
        try:
            return objects.trace.calls.call(custom, (obj, name), {})
        except AttributeError as missing:
            return _fallback(objects, obj, name, missing)
    if custom not in _GENERIC_GETATTRIBUTES:
        return _load_custom_native(objects, obj, name)
    try:
        return generic_load(objects, obj, name)
    except AttributeError as missing:
        return _fallback(objects, obj, name, missing)


def is_generic(custom: object) -> bool:
    """Whether ``custom``, the ``__getattribute__`` of a class, behaves like ``object.__getattribute__``."""
    return custom in _GENERIC_GETATTRIBUTES


def is_plain_attribute(objects: Objects, obj: object, name: str) -> bool:
    """Whether the instance dictionary alone decides ``obj.name`` if it has the key ``name``.

    This excludes classes, modules, custom ``__getattribute__`` methods and data descriptors.
    """
    cls = type(obj)
    if isinstance(obj, (type, types.ModuleType)):
        return False
    custom, _, _ = plan_of(objects, cls, "__getattribute__")
    return custom in _GENERIC_GETATTRIBUTES and not plan_of(objects, cls, name)[2]


def _load_custom_native(objects: Objects, obj: object, name: str) -> Any:
    """Load an attribute of an object whose C type has its own ``__getattribute__``.

    Raises GraphBreak for an opaque object, because no guard covers its state.
    """
    if id(obj) in objects.opaque:
        raise graph_break("unsupported-object", f"attribute {name} of a {type(obj).__qualname__}")
    return getattr(obj, name)


def _fallback(objects: Objects, obj: object, name: str, missing: AttributeError) -> Any:
    """Call the ``__getattr__`` of the class after a load has failed with the error ``missing``.

    Raise ``missing`` if the class has no ``__getattr__``.
    """
    cls = type(obj)
    hook, _, _ = plan_of(objects, cls, "__getattr__")
    if hook is ABSENT:
        raise missing
    objects.trace.interp.dealt_with(missing)
    return objects.trace.calls.call(bind(objects, hook, obj, cls), (name,), {})


def generic_load(objects: Objects, obj: Any, name: str) -> Any:
    """Load an attribute as ``object.__getattribute__`` does.

    Raises the real AttributeError. Raises GraphBreak for state of C code that no guard covers.
    """
    cls = type(obj)
    raw, getter, data = plan_of(objects, cls, name)
    if data:
        return getter(objects, raw, obj, cls)
    state = objects.instances.get(id(obj))
    if state is not None:
        value = state.get(name)
        if value is not ABSENT:
            return value
    elif id(obj) in objects.opaque:
        # Making a bound method does not read the object. A later call of the method has a rule or breaks the
        # graph.
        is_method = type(raw) is types.MethodDescriptorType or (
            cls is random.Random and type(raw) is types.FunctionType
        )
        is_method |= type(raw).__name__ == "instancemethod"  # a bound method of pybind11
        if cls is torch.Generator and name == "device":
            return objects.enter(obj.device, BuiltinAttr(_source(objects, obj), name))
        if is_method and not _is_shadowed(objects, obj, name):
            return raw.__get__(obj, cls)  # only a call of the method reads the object
        raise graph_break("unsupported-object", f"attribute {name} of a {cls.__qualname__}")
    else:
        value = _load_own(objects, obj, cls, name)
        if value is not ABSENT:
            return value
    if getter is not None:
        return getter(objects, raw, obj, cls)
    raise AttributeError(f"{cls.__name__!r} object has no attribute {name!r}", name=name, obj=obj)


def _source(objects: Objects, obj: object) -> Source:
    """Return the source of an object from outside."""
    source = objects.source_of(obj)
    assert source is not None
    return source


def _load_own(objects: Objects, obj: object, cls: type, name: str) -> Any:
    """Return an entry from the instance dictionary of an object that has no lazy dictionary, or ABSENT.

    Such an object was made in the trace, or is its own proxy, for example an enum member.
    """
    namespace = raw_dict_or_none(obj)
    if namespace is None:
        return ABSENT
    source = objects.source_of(obj)
    if source is None or is_immutable(cls):
        return namespace.get(name, ABSENT)
    if name not in namespace:
        objects.trace.guard(InstanceDict(source), HasKey(name, present=False))
        return ABSENT
    if type(namespace[name]) in (int, float):  # a constant of the program is never dynamic
        objects.trace.guard(InstanceAttr(source, name), Equals(namespace[name]))
        return namespace[name]
    return objects.enter(namespace[name], InstanceAttr(source, name))


def _is_shadowed(objects: Objects, obj: object, name: str) -> bool:
    """Whether the instance dictionary of an opaque object has ``name``. The entry then hides the attribute of
    the class.

    The answer is guarded.
    """
    namespace, source = raw_dict_or_none(obj), objects.source_of(obj)
    if namespace is None or source is None:
        return namespace is not None
    objects.trace.guard(InstanceDict(source), HasKey(name, name in namespace))
    return name in namespace


@calls_program
def load_native(objects: Objects, obj: object, name: str) -> Any:
    """Load an attribute of an object of an exact builtin type.

    Such an object has no instance dictionary. Its type has only C descriptors.
    """
    return getattr(obj, name)


@calls_program
def load_builtin(objects: Objects, obj: object, name: str) -> Any:
    """Load an attribute of a C function. If ``__self__`` is an append-only list, the list is expanded."""
    value = getattr(obj, name)
    if name == "__self__":
        objects.expand(value)
    return value


def load_cell(objects: Objects, cell: Any, name: str) -> Any:
    """Load an attribute of a cell. ``cell_contents`` is read as a bytecode instruction reads it."""
    return objects.load_cell(cell) if name == "cell_contents" else getattr(cell, name)


@calls_program
def load_symbolic(objects: Objects, obj: object, name: str) -> Any:
    """Load an attribute of a symbolic number.

    If the attribute depends on the value of the number, the number becomes a constant.
    """
    plain = PLAIN_TYPES[type(obj)]
    if name == "__class__":
        return plain
    symbolic = name in _OF_SYMBOLS or name.startswith("__")
    if symbolic and hasattr(plain, name) and hasattr(type(obj), name):
        return load(objects, obj, name)
    return getattr(objects.trace.torch.specialize(obj), name)


_OF_SYMBOLS = frozenset(("real", "imag", "numerator", "denominator", "conjugate"))
"""Attributes of a symbolic number that are themselves symbolic expressions.

Other attributes (``hex``, ``bit_length``) need the value of the number.
"""


@calls_program
def load_scalar(objects: Objects, scalar: Scalar, name: str) -> Any:
    """Load an attribute of a dynamic NumPy scalar.

    An attribute that depends only on the class is read from the example. For any other attribute, the scalar
    becomes a constant.
    """
    if name == "item":
        return types.MethodType(item, scalar)
    is_metadata = name in ("__class__", "dtype", "ndim", "shape", "size", "itemsize", "nbytes")
    return getattr(scalar.example if is_metadata else scalar.settle(), name)


def load_thread_local(objects: Objects, obj: object, name: str) -> Any:
    """Load an attribute of a ``threading.local``, or the ``__dict__`` of an instance of a subclass. Break the
    graph if the ``__dict__`` is not known.

    The AttributeError has the class name that the C code uses.
    """
    state = objects.instances.get(id(obj))
    if name == "__dict__":
        if state is None:
            raise graph_break("unsupported-object", f"attribute __dict__ of a {type(obj).__name__}")
        return state.proxy
    try:
        return load(objects, obj, name)
    except AttributeError as error:
        if type(obj) is threading.local:
            error.args = (f"'_thread._local' object has no attribute {name!r}",)
        raise


def load_proxy(objects: Objects, proxy: object, name: str) -> Any:
    """Load an attribute through a weak proxy (``weakref.proxy``). The trace knows the referents of its own
    weak proxies.
    """
    if id(proxy) not in objects.weak_proxies:
        return load(objects, proxy, name)
    return objects.load_attr(objects.weak_proxies[id(proxy)], name)


def load_storage(objects: Objects, storage: torch.UntypedStorage, name: str) -> Any:
    """Load an attribute of a storage. A storage made in the trace has the attributes of a real storage."""
    storages = objects.trace.torch.storages
    return (
        load(objects, storage, name) if storages.tensor_of(storage) is None else storages.load(storage, name)
    )


LOADERS: dict[type, Callable[[Any, Any, str], Any]] = {
    types.FunctionType: load_function,
    types.ModuleType: load_module,
    types.MethodType: load_method,
    type: load_class,
    super: load_super,
    types.CellType: load_cell,
    threading.local: load_thread_local,
    weakref.ProxyType: load_proxy,
    types.BuiltinFunctionType: load_builtin,
    **dict.fromkeys(PLAIN_TYPES, load_symbolic),
    Scalar: load_scalar,
    torch.UntypedStorage: load_storage,
    Array: lambda _objects, array, name: load_array(array, name),
    **dict.fromkeys(
        (
            *LITERAL_TYPES,
            *numpy_types.CONSTANT_TYPES,
            np.finfo,
            np.iinfo,
            *DESCRIPTOR_TYPES,
            bytearray,
            list,
            tuple,
            dict,
            set,
            frozenset,
            slice,
            range,
            BUILTIN_METHOD,
            types.MethodWrapperType,
            types.CodeType,
            types.MappingProxyType,
            types.GenericAlias,
            types.UnionType,
            torch.Size,
        ),
        load_native,
    ),
}
"""Maps exact types to the functions that load their attributes. ``load`` handles all other types."""
