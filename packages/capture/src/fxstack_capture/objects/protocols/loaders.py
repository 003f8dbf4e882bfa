"""Attribute loads of classes, modules, functions, methods and ``super`` objects."""

from __future__ import annotations

import importlib
import types
from collections.abc import Callable
from threading import Thread
from typing import Any

import torch

from fxstack_capture.callers import calls_program
from fxstack_capture.native.class_flags import is_immutable
from fxstack_capture.objects.kinds.functions import entry_of, guard_part
from fxstack_capture.objects.protocols.descriptors import (
    bind,
    get_cached_property,
    get_function,
    get_getset,
    get_plain,
    get_property,
    get_slot,
    getter_of,
    plan_of,
)
from fxstack_capture.sources import BuiltinAttr, InstanceDict, SlotAttr, pinned
from fxstack_capture.trace.effect_diff import diff
from fxstack_capture.trace.effects import Call
from fxstack_capture.trace.late_guards.class_reads import dict_of
from fxstack_capture.trace.late_guards.stable_modules import is_stable_module
from fxstack_capture.trace.lazy_dict import ABSENT, LazyDict
from fxstack_capture.trace.state import Objects


def load_class(objects: Objects, cls: type, name: str) -> Any:
    """Load a class attribute with ``type.__getattribute__``, or with the metaclass's own
    ``__getattribute__``.

    If the attribute is absent, call the metaclass's ``__getattr__``.
    """
    meta = type(cls)
    if meta is not type:
        custom, _, _ = plan_of(objects, meta, "__getattribute__")
        if type(custom) is types.FunctionType:
            return objects.trace.calls.call(custom, (cls, name), {})
    try:
        return generic_load_class(objects, cls, name)
    except AttributeError as missing:
        hook = objects.classes.lookup(meta, "__getattr__") if meta is not type else ABSENT
        if hook is ABSENT:
            raise
        objects.trace.interp.dealt_with(missing)
        return objects.trace.calls.call(bind(objects, hook, cls, meta), (name,), {})


def generic_load_class(objects: Objects, cls: type, name: str) -> Any:
    """Load a class attribute as ``type.__getattribute__`` does.

    The rule of ``type.__getattribute__`` also calls this function. Raises the real AttributeError.
    """
    meta = type(cls)
    raw_meta, getter, data = plan_of(objects, meta, name)
    if data:
        return _load_type_slot(objects, raw_meta, getter, cls, name)
    raw, get, _ = plan_of(objects, cls, name)
    if raw is not ABSENT:
        return _bind_to_class(objects, raw, get, cls)
    if getter is not None:
        return getter(objects, raw_meta, cls, meta)
    # CPython's text of the error
    raise AttributeError(f"type object {cls.__name__!r} has no attribute {name!r}", name=name, obj=cls)


def load_from_class_alone(objects: Objects, cls: type, name: str) -> Any:
    """Load a class attribute for a call of ``object.__getattribute__`` with the class as the object.

    This call ignores the bases of the class and binds nothing.
    """
    meta = type(cls)
    raw_meta, getter, data = plan_of(objects, meta, name)
    if data:
        return _load_type_slot(objects, raw_meta, getter, cls, name)
    raw, _, _ = plan_of(objects, cls, name)
    if name in dict_of(cls):
        return raw
    if getter is not None:
        return getter(objects, raw_meta, cls, meta)
    raise AttributeError(f"{meta.__name__!r} object has no attribute {name!r}", name=name, obj=cls)


@calls_program
def _load_type_slot(objects: Objects, raw: Any, getter: Callable[..., Any], cls: type, name: str) -> Any:
    """Load ``raw``, a data descriptor of the metaclass, such as ``__name__``, ``__mro__``, ``__dict__`` or a
    property.

    ``getter`` is called for a descriptor that is not C code.
    """
    if type(raw) not in _C_DESCRIPTORS:
        return getter(objects, raw, cls, type(cls))
    value = raw.__get__(cls)
    if type(value) in (str, tuple, type(None), int, types.MappingProxyType) or isinstance(value, type):
        if name == "__dict__":
            # The lookup along the MRO begins at the class itself, so it finds the class's own entry.
            return types.MappingProxyType({k: objects.classes.lookup(cls, k) for k in value})
        if name in _ANCESTRY:
            objects.classes.note_bases(cls)
        elif (type(value) is str or name == "__doc__") and not is_immutable(cls) and not objects.is_new(cls):
            source = SlotAttr(pinned(cls, cls.__qualname__), raw.__objclass__, raw.__name__)
            return objects.enter(value, source)
        return value
    if objects.is_new(cls) or not objects.is_preexisting(cls):
        return value
    return objects.enter(value, BuiltinAttr(pinned(cls, cls.__qualname__), name))


def _bind_to_class(objects: Objects, raw: object, getter: Callable[..., Any], cls: type) -> Any:
    """Bind ``raw``, which was found along the MRO of ``cls``, for a load from the class.

    Functions, properties and slots stay unbound.
    """
    if getter is get_function or getter is get_plain or getter is get_property:
        return raw
    if getter is get_slot or getter is get_getset or getter is get_cached_property:
        return raw
    return getter(objects, raw, None, cls)


@calls_program
def load_module(objects: Objects, module: Any, name: str) -> Any:
    """Load a module attribute.

    The guards cover the entry of the module's namespace. If the name is absent, the module's ``__getattr__``
    runs.
    """
    if type(module) is not types.ModuleType and name not in module.__dict__:
        raw, getter, data = plan_of(objects, type(module), name)
        if data and type(raw) not in _C_DESCRIPTORS:  # flags of torch.backends
            return getter(objects, raw, module, type(module))
        getattr(module, name, None)  # the first load stores an operator in its namespace
    if module is torch and name in _LAZY_MODULES and name not in module.__dict__:
        _import_apart(f"torch.{name}")
    if module is torch and name == "manual_seed" and _is_wrapped_at_most(module.__dict__.get(name)):
        return objects.enter(_MANUAL_SEED, pinned(_MANUAL_SEED, "torch.manual_seed"))
    value = _load_from_module(objects, module, name)
    if value is not ABSENT:
        return value
    if type(module) is not types.ModuleType:
        hook, _, _ = plan_of(objects, type(module), "__getattr__")
        if type(hook) is types.FunctionType and _has_changes(objects):
            # The module may compute the attribute from state that this trace has changed, for example from
            # settings of torch.
            return objects.trace.calls.call(hook, (module, name), {})
        # A module with lazy imports: the import happens once, and its result is a definition.
        value = getattr(module, name)
        return objects.enter(value, BuiltinAttr(pinned(module, module.__name__), name))
    hook = objects.namespace(module.__dict__).get("__getattr__")
    if hook is not ABSENT:
        return objects.trace.calls.call(hook, (name,), {})
    raise AttributeError(f"module {module.__name__!r} has no attribute {name!r}", name=name, obj=module)


def _has_changes(objects: Objects) -> bool:
    """Whether the trace has changed state that code of the program may read.

    A deferred call has not run yet, so it does not count.
    """
    return bool(objects.context) or any(type(effect) is not Call for effect in diff(objects))


_MANUAL_SEED = torch.random.manual_seed


def _is_wrapped_at_most(value: object) -> bool:
    """Whether ``value`` is torch's own ``torch.manual_seed``, with or without the wrapper of torch's
    compiler.

    The import of torch's compiler wraps the function, possibly while a frame is traced. Compiled code does
    not depend on the wrapper.
    """
    return value is _MANUAL_SEED or getattr(value, "__wrapped__", None) is _MANUAL_SEED


_LAZY_MODULES = frozenset(getattr(torch, "_lazy_modules", ()))
"""Modules that torch imports when their attribute is first read. The program cannot observe the time of the
import.
"""


def _import_apart(name: str) -> None:
    """Import a module in a new thread and wait until the import ends. Frames of the new thread are not
    traced.
    """
    thread = Thread(target=importlib.import_module, args=(name,))
    thread.start()
    thread.join()


def load_from_module_alone(objects: Objects, module: object, name: str) -> Any:
    """Load a module attribute for a call of ``object.__getattribute__``.

    The module's ``__getattr__`` is not called.
    """
    value = _load_from_module(objects, module, name)
    if value is ABSENT:
        cls = type(module).__name__
        raise AttributeError(f"{cls!r} object has no attribute {name!r}", name=name, obj=module)
    return value


def _load_from_module(objects: Objects, module: object, name: str) -> Any:
    """Return the attribute of the module or its class, or ABSENT."""
    state = objects.namespace(module.__dict__)
    value = state.get(name)
    if value is not ABSENT:
        return value
    raw, getter, _ = plan_of(objects, type(module), name)
    if raw is ABSENT:
        return ABSENT
    return state.proxy if name == "__dict__" else getter(objects, raw, module, type(module))


_ANCESTRY = frozenset({"__mro__", "__bases__", "__base__"})
"""Attributes of a class that name its bases. The program may assign new bases."""
_C_DESCRIPTORS = (types.GetSetDescriptorType, types.MemberDescriptorType)

_FUNCTION_SLOTS = frozenset({"__code__", "__builtins__", "__type_params__"})
"""Attributes of a function that are guarded but not wrapped, such as ``__code__``, which is guarded by
identity.
"""


_TEXTS = frozenset({"__name__", "__qualname__", "__module__", "__doc__"})
_FUNCTION_PARTS = _TEXTS | {"__defaults__", "__kwdefaults__", "__annotations__"}
"""Attributes that CPython stores in the function object, not in the ``__dict__`` of the function."""


@calls_program
def load_function(objects: Objects, fn: types.FunctionType, name: str) -> Any:
    """Load an attribute of a function. The attributes of a function from outside are guarded one by one."""
    if objects.is_new(fn):
        return getattr(fn, name)
    entry = entry_of(objects, fn)
    if name in _FUNCTION_SLOTS:
        if name == "__code__":
            guard_part(objects, fn, name, entry.source)
        return getattr(fn, name)
    if name == "__globals__":
        return objects.namespace(fn.__globals__).proxy
    if name == "__closure__":
        return objects.function_parts(fn)[2] or None
    if name in _FUNCTION_PARTS:
        return objects.enter(getattr(fn, name), BuiltinAttr(entry.source, name))
    state = function_dict(objects, fn)
    if name == "__dict__":
        return state.proxy
    value = state.get(name)
    if value is not ABSENT:
        return value
    for cls in (types.FunctionType, object):
        if name in cls.__dict__:
            raw = cls.__dict__[name]
            return raw.__get__(fn, types.FunctionType) if hasattr(raw, "__get__") else raw
    raise AttributeError(f"'function' object has no attribute '{name}'", name=name, obj=fn)


def function_dict(objects: Objects, fn: types.FunctionType) -> LazyDict:
    """Return the lazy state of the ``__dict__`` of a function from outside. The first call makes the state."""
    state = objects.instances.get(id(fn))
    if state is None:
        source = InstanceDict(objects.registry.by_proxy[id(fn)].source)
        stable = is_stable_module(fn.__module__)
        state = objects.add_instance_dict(fn, fn.__dict__, {}, source, stable=stable)
    return state


def load_method(objects: Objects, method: types.MethodType, name: str) -> Any:
    """Load an attribute of a method object. An attribute that the method lacks is read from its function."""
    if name == "__func__":
        return method.__func__
    if name == "__self__":
        return method.__self__
    if hasattr(types.MethodType, name) and name not in {"__doc__", "__module__"}:
        return getattr(method, name)
    return objects.load_attr(method.__func__, name)


def load_super(objects: Objects, proxy: Any, name: str) -> Any:
    """Load ``super().name``. ``proxy`` is the ``super`` object.

    The lookup starts after ``__thisclass__`` in the MRO of the object's class.
    """
    start, obj, cls = proxy.__thisclass__, proxy.__self__, proxy.__self_class__
    if cls is None or name == "__class__":
        return getattr(proxy, name)
    raw = super_lookup(objects, start, cls, name)
    if raw is ABSENT:
        return getattr(proxy, name)
    if obj is cls:
        return _bind_to_class(objects, raw, getter_of(objects, raw), cls)
    return bind(objects, raw, obj, cls)


def super_lookup(objects: Objects, start: type, cls: type, name: str) -> Any:
    """Return the raw attribute ``name`` of the first class after ``start`` in the MRO of ``cls``, or ABSENT.

    The guards demand that the classes between do not have the name.
    """
    mro = type.__dict__["__mro__"].__get__(cls)
    for base in mro[mro.index(start) + 1 :]:
        overlay = objects.classes.overlays.get(base)
        if name in base.__dict__ or (overlay is not None and name in overlay):
            return objects.classes.lookup(base, name)
        if not is_immutable(base):
            objects.classes.lookup(base, name)  # the lookup guards that the name stays absent
    return ABSENT
