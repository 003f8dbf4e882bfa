"""CPython's attribute protocol on trace-world objects.

Type lookups are raw and guarded per class (``classes``); instance dictionaries are lazy; descriptors and hooks
written in Python are interpreted; C descriptors run natively on stand-ins whose state is not lazy.
"""

from __future__ import annotations

import builtins
import collections
import functools
import types
from typing import TYPE_CHECKING, Any

import torch

from fxstack_capture.breaks import graph_break

from fxstack_capture.sources import BuiltinAttr, InstanceDict, SlotAttr, pinned
from fxstack_capture.trace import Lazy
from fxstack_capture.world.constants import BUILTIN_METHOD
from fxstack_capture.world.instances import dict_descriptor, slots
from fxstack_capture.world.lazy_dict import ABSENT, LazyDict
from fxstack_capture.world.trusted import is_trusted_module

if TYPE_CHECKING:
    from collections.abc import Callable

    from fxstack_capture.world.world import MirrorWorld

    Getter = Callable[[MirrorWorld, Any, Any, type], Any]

_GENERIC_GETATTRIBUTES: frozenset[object] = frozenset(
    cls.__dict__["__getattribute__"]
    for cls in (
        *(v for v in vars(builtins).values() if isinstance(v, type)),
        *(collections.OrderedDict, collections.defaultdict, collections.deque),
        *(types.SimpleNamespace, functools.partial),
    )
    if "__getattribute__" in cls.__dict__ and cls not in (type, super)
)
"""Slots of C types that are ``object.__getattribute__`` under another name."""
_object_setattr = object.__setattr__
_object_delattr = object.__delattr__


def raw_dict(obj: object) -> dict[str, Any]:
    """``obj.__dict__`` by the C descriptor."""
    return dict_descriptor(type(obj)).__get__(obj)  # type: ignore[no-any-return]


_MIRRORED_TYPES = frozenset(
    {int, float, complex, collections.deque, collections.defaultdict, collections.OrderedDict, functools.partial}
)
"""C types whose stand-ins have all of the original's C-level state."""


# --- descriptors found on the type ---------------------------------------------------------------


def _get_function(world: MirrorWorld, raw: Any, obj: Any, cls: type) -> Any:
    return types.MethodType(raw, obj)


def _get_plain(world: MirrorWorld, raw: Any, obj: Any, cls: type) -> Any:
    return raw


def _get_native(world: MirrorWorld, raw: Any, obj: Any, cls: type) -> Any:
    return raw.__get__(obj, cls)


def _get_staticmethod(world: MirrorWorld, raw: Any, obj: Any, cls: type) -> Any:
    return _held(world, raw, raw.__func__, "__func__")


def _get_classmethod(world: MirrorWorld, raw: Any, obj: Any, cls: type) -> Any:
    inner = _held(world, raw, raw.__func__, "__func__")
    if type(inner) is types.FunctionType:
        return types.MethodType(inner, cls)
    return _bind(world, inner, cls, type(cls)) if hasattr(type(inner), "__get__") else types.MethodType(inner, cls)


def _get_property(world: MirrorWorld, raw: Any, obj: Any, cls: type) -> Any:
    if obj is None:
        return raw
    if raw.fget is None:
        return raw.__get__(obj, cls)  # raises the real AttributeError
    return world.trace.calls.call(_held(world, raw, raw.fget, "fget"), (obj,), {})


def _get_cached_property(world: MirrorWorld, raw: Any, obj: Any, cls: type) -> Any:
    if obj is None:
        return raw
    value = world.trace.calls.call(_held(world, raw, raw.func, "func"), (obj,), {})
    state = world.instances.get(id(obj))
    if state is not None:
        state.set(raw.attrname, value)
    else:
        raw_dict(obj)[raw.attrname] = value
    return value


def _get_slot(world: MirrorWorld, raw: Any, obj: Any, cls: type) -> Any:
    known = world.slots.get(id(obj))
    if obj is None or known is None or raw in known or not _is_own_slot(raw):
        return raw.__get__(obj, cls)
    entry = world.registry.by_standin[id(obj)]
    try:
        value = raw.__get__(entry.original)
    except AttributeError:
        world.trace.guard(SlotAttr(entry.source, raw.__objclass__, raw.__name__), _unset())
        known[raw] = ABSENT
        return raw.__get__(obj, cls)
    standin = known[raw] = world.enter(value, SlotAttr(entry.source, raw.__objclass__, raw.__name__))
    raw.__set__(obj, standin)
    return standin


def _unset() -> Any:
    raise graph_break("unsupported-object", "an unset slot of a pre-existing object is read")


def _is_own_slot(raw: Any) -> bool:
    return bool(raw.__objclass__.__flags__ & (1 << 9))  # Py_TPFLAGS_HEAPTYPE


def _get_getset(world: MirrorWorld, raw: Any, obj: Any, cls: type) -> Any:
    if obj is None:
        return raw
    if raw.__name__ == "__dict__":
        return raw.__get__(obj, cls)  # for stand-ins this is the lazy dictionary itself
    entry = world.registry.by_standin.get(id(obj))
    if entry is None or raw.__name__ == "__class__":
        return raw.__get__(obj, cls)
    if entry.original is obj:
        value = raw.__get__(obj, cls)
        return world.enter(value, BuiltinAttr(entry.source, raw.__name__))
    if isinstance(obj, BaseException) or raw.__objclass__ in _MIRRORED_TYPES:
        return raw.__get__(obj, cls)
    if raw.__name__ == "__weakref__":
        return raw.__get__(obj, cls)
    raise graph_break("unsupported-object", f"C attribute {raw.__name__} of a {cls.__qualname__}")


def _get_user(world: MirrorWorld, raw: Any, obj: Any, cls: type) -> Any:
    get = world.classes.lookup(type(raw), "__get__")
    return world.trace.calls.call(get, (raw, obj, cls), {})


def _held(world: MirrorWorld, holder: Any, value: Any, name: str) -> Any:
    """A callable held by a descriptor object; which one is settled by the identity of the holder."""
    entry = world.registry.by_standin.get(id(holder))
    if entry is None or value is None:
        return value
    if type(value) is types.FunctionType:
        return world.enter_as_itself(value, BuiltinAttr(entry.source, name))
    return world.enter(value, BuiltinAttr(entry.source, name))


_GETTERS: dict[type, Getter] = {
    types.FunctionType: _get_function,
    staticmethod: _get_staticmethod,
    classmethod: _get_classmethod,
    property: _get_property,
    functools.cached_property: _get_cached_property,
    types.MemberDescriptorType: _get_slot,
    types.GetSetDescriptorType: _get_getset,
    types.MethodDescriptorType: _get_native,
    types.WrapperDescriptorType: _get_native,
    types.ClassMethodDescriptorType: _get_native,
    types.BuiltinFunctionType: _get_plain,
}


def _getter(world: MirrorWorld, raw: Any) -> Getter:
    kind = type(raw)
    found = _GETTERS.get(kind)
    if found is not None:
        return found
    get = world.classes.lookup(kind, "__get__")
    if get is ABSENT:
        return _get_plain
    return _get_user if type(get) is types.FunctionType else _get_native


def _bind(world: MirrorWorld, raw: Any, obj: Any, cls: type) -> Any:
    return _getter(world, raw)(world, raw, obj, cls)


def is_data_descriptor(world: MirrorWorld, raw: Any) -> bool:
    kind = type(raw)
    if kind is types.FunctionType:
        return False
    lookup = world.classes.lookup
    return lookup(kind, "__set__") is not ABSENT or lookup(kind, "__delete__") is not ABSENT


def _plan(world: MirrorWorld, cls: type, name: str) -> tuple[Any, Getter | None, bool]:
    """(raw attribute or ABSENT, how to bind it, whether it goes before the instance dictionary)."""
    raw = world.classes.lookup(cls, name)
    if raw is ABSENT:
        plan: tuple[Any, Getter | None, bool] = (ABSENT, None, False)
    else:
        getter = _getter(world, raw)
        plan = (raw, getter, getter is not _get_plain and is_data_descriptor(world, raw))
    if not world.classes.overlays:
        world.plans[(cls, name)] = plan
    return plan


def plan_of(world: MirrorWorld, cls: type, name: str) -> tuple[Any, Getter | None, bool]:
    if world.classes.overlays:
        return _plan(world, cls, name)
    return world.plans.get((cls, name)) or _plan(world, cls, name)


# --- loads ---------------------------------------------------------------------------------------


def load(world: MirrorWorld, obj: Any, name: str) -> Any:
    """An attribute of an instance of any class."""
    cls = type(obj)
    if isinstance(obj, types.ModuleType):
        return load_module(world, obj, name)
    if isinstance(obj, type):
        return load_class(world, obj, name)
    custom, _, _ = plan_of(world, cls, "__getattribute__")
    if type(custom) is types.FunctionType:
        try:
            return world.trace.calls.call(custom, (obj, name), {})
        except AttributeError:
            return _fallback(world, obj, cls, name)
    if custom not in _GENERIC_GETATTRIBUTES:
        return _load_custom_native(world, obj, name)
    try:
        return generic_load(world, obj, name)
    except AttributeError:
        return _fallback(world, obj, cls, name)


def _load_custom_native(world: MirrorWorld, obj: Any, name: str) -> Any:
    """Objects whose C type has an attribute protocol of its own."""
    if id(obj) in world.opaque:
        raise graph_break("unsupported-object", f"attribute {name} of a {type(obj).__qualname__}")
    return getattr(obj, name)


def _fallback(world: MirrorWorld, obj: Any, cls: type, name: str) -> Any:
    hook, _, _ = plan_of(world, cls, "__getattr__")
    if hook is ABSENT:
        raise  # noqa: PLE0704 - called while the AttributeError is handled
    return world.trace.calls.call(_bind(world, hook, obj, cls), (name,), {})


def generic_load(world: MirrorWorld, obj: Any, name: str) -> Any:
    """``object.__getattribute__``."""
    cls = type(obj)
    raw, getter, data = plan_of(world, cls, name)
    if data:
        return getter(world, raw, obj, cls)  # type: ignore[misc]
    state = world.instances.get(id(obj))
    if state is not None:
        value = state.get(name)
        if value is not ABSENT:
            return value
    elif id(obj) in world.opaque:
        raise graph_break("unsupported-object", f"attribute {name} of a {cls.__qualname__}")
    else:
        own = getattr_dict(obj)
        if own is not None and name in own:
            return own[name]
    if getter is not None:
        return getter(world, raw, obj, cls)
    raise AttributeError(f"{cls.__name__!r} object has no attribute {name!r}", name=name, obj=obj)


def getattr_dict(obj: Any) -> dict[str, Any] | None:
    """The instance dictionary of an object made in the trace, if its class has one."""
    descriptor = dict_descriptor(type(obj))
    return None if descriptor is None else descriptor.__get__(obj)


def load_native(world: MirrorWorld, obj: Any, name: str) -> Any:
    """Exact builtin types: no instance dictionary, C descriptors only."""
    return getattr(obj, name)


def load_class(world: MirrorWorld, cls: type, name: str) -> Any:
    """``type.__getattribute__`` (or the metaclass's own)."""
    meta = type(cls)
    if meta is not type:
        custom, _, _ = plan_of(world, meta, "__getattribute__")
        if type(custom) is types.FunctionType:
            return world.trace.calls.call(custom, (cls, name), {})
    try:
        return generic_load_class(world, cls, name)
    except AttributeError:
        hook = world.classes.lookup(meta, "__getattr__") if meta is not type else ABSENT
        if hook is ABSENT:
            raise
        return world.trace.calls.call(_bind(world, hook, cls, meta), (name,), {})


def generic_load_class(world: MirrorWorld, cls: type, name: str) -> Any:
    meta = type(cls)
    raw_meta, getter, data = plan_of(world, meta, name)
    if data:
        return _load_type_slot(world, raw_meta, getter, cls, name)
    raw, get, _ = plan_of(world, cls, name)
    if raw is not ABSENT:
        return _bind_to_class(world, raw, get, cls)
    if getter is not None:
        return getter(world, raw_meta, cls, meta)
    # The message is CPython's own; nothing is there to be found.
    raise AttributeError(f"type object {cls.__name__!r} has no attribute {name!r}", name=name, obj=cls)


def _load_type_slot(world: MirrorWorld, raw: Any, getter: Any, cls: type, name: str) -> Any:
    """Data descriptors of the metaclass: ``__name__``, ``__mro__``, ``__dict__``, properties of metaclasses."""
    if type(raw) not in (types.GetSetDescriptorType, types.MemberDescriptorType):
        return getter(world, raw, cls, type(cls))
    value = raw.__get__(cls)
    if type(value) in (str, tuple, type(None), int, types.MappingProxyType) or isinstance(value, type):
        if name == "__dict__":
            return types.MappingProxyType({k: _dict_value(world, cls, k) for k in value})
        return value
    if world.is_new(cls) or not world.is_preexisting(cls):
        return value
    return world.enter(value, BuiltinAttr(pinned(cls, cls.__qualname__), name))


def _dict_value(world: MirrorWorld, cls: type, name: str) -> Any:
    """An entry of ``cls.__dict__`` itself (which is what a lookup along the MRO finds first)."""
    return world.classes.lookup(cls, name)


def _bind_to_class(world: MirrorWorld, raw: Any, getter: Any, cls: type) -> Any:
    if getter is _get_function or getter is _get_plain or getter is _get_property:
        return raw
    if getter is _get_slot or getter is _get_getset or getter is _get_cached_property:
        return raw
    return getter(world, raw, None, cls)


def load_module(world: MirrorWorld, module: Any, name: str) -> Any:
    state = world.namespace(module.__dict__)
    value = state.get(name)
    if value is not ABSENT:
        return value
    raw, getter, _ = plan_of(world, type(module), name)
    if raw is not ABSENT:
        if name == "__dict__":
            return state.mirror
        return getter(world, raw, module, type(module))  # type: ignore[misc]
    if type(module) is not types.ModuleType:
        # Classes of lazily importing modules: an import happens once and its result is a definition.
        value = getattr(module, name)
        return world.enter(value, BuiltinAttr(pinned(module, module.__name__), name))
    hook = state.get("__getattr__")
    if hook is not ABSENT:
        return world.trace.calls.call(hook, (name,), {})
    raise AttributeError(f"module {module.__name__!r} has no attribute {name!r}", name=name, obj=module)


_FUNCTION_SLOTS = frozenset(
    {
        "__name__",
        "__qualname__",
        "__code__",
        "__builtins__",
        "__type_params__",
    }
)


def load_function(world: MirrorWorld, fn: types.FunctionType, name: str) -> Any:
    if world.is_new(fn):
        return getattr(fn, name)
    entry = world.registry.by_standin.get(id(fn))
    if entry is None:
        entry = world.registry.add(fn, fn, pinned(fn, fn.__qualname__))
    if name in _FUNCTION_SLOTS:
        return getattr(fn, name)
    if name == "__globals__":
        return world.namespace(fn.__globals__).mirror
    if name == "__closure__":
        return world.function_parts(fn)[2] or None
    if name in {"__defaults__", "__kwdefaults__", "__annotations__", "__module__", "__doc__"}:
        value = getattr(fn, name)
        if value is None or is_trusted_module(fn.__module__) and type(value) is str:
            return value
        return world.enter(value, BuiltinAttr(entry.source, name))
    state = function_dict(world, fn)
    if name == "__dict__":
        return state.mirror
    value = state.get(name)
    if value is not ABSENT:
        return value
    return getattr(types.FunctionType, name).__get__(fn) if hasattr(types.FunctionType, name) else getattr(fn, name)


def function_dict(world: MirrorWorld, fn: types.FunctionType) -> LazyDict:
    """State of a pre-existing function's ``__dict__``."""
    state = world.instances.get(id(fn))
    if state is None:
        source = world.registry.by_standin[id(fn)].source
        state = LazyDict(world, fn.__dict__, {}, InstanceDict(source), uniform=True, trusted=is_trusted_module(fn.__module__))
        world.instances[id(fn)] = state
        world.registry.add(fn.__dict__, state.mirror, state.source)
        world.add_dict(state)
    return state


def load_method(world: MirrorWorld, method: types.MethodType, name: str) -> Any:
    if name == "__func__":
        return method.__func__
    if name == "__self__":
        return method.__self__
    if hasattr(types.MethodType, name) and name not in {"__doc__", "__module__"}:
        return getattr(method, name)
    return world.load_attr(method.__func__, name)


def load_super(world: MirrorWorld, proxy: Any, name: str) -> Any:
    """``super().name``: the lookup starts behind ``__thisclass__`` in the MRO of the object's class."""
    start, obj, cls = proxy.__thisclass__, proxy.__self__, proxy.__self_class__
    if cls is None or name == "__class__":
        return getattr(proxy, name)
    found = super_lookup(world, start, cls, name)
    if found is ABSENT:
        return getattr(proxy, name)
    if obj is cls:
        return _bind_to_class(world, found, _getter(world, found), cls)
    return _bind(world, found, obj, cls)


def super_lookup(world: MirrorWorld, start: type, cls: type, name: str) -> Any:
    mro = type.__dict__["__mro__"].__get__(cls)
    for base in mro[mro.index(start) + 1 :]:
        overlay = world.classes.overlays.get(base)
        if name in base.__dict__ or (overlay is not None and name in overlay):
            return world.classes.lookup(base, name)
        if not base.__flags__ & (1 << 8):
            world.classes.lookup(base, name)  # guards that it stays absent
    return ABSENT


LOADERS: dict[type, Callable[[Any, Any, str], Any]] = {
    types.FunctionType: load_function,
    types.ModuleType: load_module,
    types.MethodType: load_method,
    type: load_class,
    super: load_super,
    **dict.fromkeys(
        (
            bool,
            int,
            float,
            complex,
            str,
            bytes,
            bytearray,
            list,
            tuple,
            dict,
            set,
            frozenset,
            slice,
            range,
            type(None),
            types.BuiltinFunctionType,
            BUILTIN_METHOD,
            types.MethodDescriptorType,
            types.WrapperDescriptorType,
            types.GetSetDescriptorType,
            types.MemberDescriptorType,
            types.ClassMethodDescriptorType,
            types.MethodWrapperType,
            types.CodeType,
            types.CellType,
            types.MappingProxyType,
            types.GenericAlias,
            types.UnionType,
            torch.dtype,
            torch.device,
            torch.layout,
            torch.memory_format,
            torch.Size,
        ),
        load_native,
    ),
}


# --- stores and deletes --------------------------------------------------------------------------


def store(world: MirrorWorld, obj: Any, name: str, value: object) -> None:
    cls = type(obj)
    if isinstance(obj, torch.Tensor):
        world.trace.torch.store_attr(obj, name, value)
        return
    custom, _, _ = plan_of(world, cls, "__setattr__")
    if type(custom) is types.FunctionType:
        world.trace.calls.call(custom, (obj, name, value), {})
        return
    generic_store(world, obj, name, value)


def delete(world: MirrorWorld, obj: Any, name: str) -> None:
    cls = type(obj)
    if isinstance(obj, torch.Tensor):
        raise graph_break("unsupported-tensor", f"deleting attribute {name} of a tensor")
    custom, _, _ = plan_of(world, cls, "__delattr__")
    if type(custom) is types.FunctionType:
        world.trace.calls.call(custom, (obj, name), {})
        return
    generic_store(world, obj, name, ABSENT)


def generic_store(world: MirrorWorld, obj: Any, name: str, value: Any) -> None:
    """``object.__setattr__`` / ``__delattr__`` (``value`` is ABSENT), for all kinds of objects."""
    if isinstance(obj, types.ModuleType):
        _write(world.namespace(obj.__dict__), obj, name, value)
        return
    if isinstance(obj, type):
        _store_class(world, obj, name, value)
        return
    cls = type(obj)
    raw, getter, data = plan_of(world, cls, name)
    if data and _store_descriptor(world, raw, obj, name, value):
        return
    state = world.instances.get(id(obj))
    if state is None and cls is types.FunctionType and not world.is_new(obj) and world.is_preexisting(obj):
        state = function_dict(world, obj)
    if state is not None:
        _write(state, obj, name, value)
    elif id(obj) in world.opaque:
        raise graph_break("unsupported-object", f"storing attribute {name} of a {cls.__qualname__}")
    elif value is ABSENT:
        _object_delattr(obj, name)
    else:
        _object_setattr(obj, name, value)


def _store_descriptor(world: MirrorWorld, raw: Any, obj: Any, name: str, value: Any) -> bool:
    """Give the write to a data descriptor; False if it has no method for it (the real error follows)."""
    kind = type(raw)
    method = "__delete__" if value is ABSENT else "__set__"
    args = (raw, obj) if value is ABSENT else (raw, obj, value)
    if kind is property:
        fn = raw.fdel if value is ABSENT else raw.fset
        if fn is None:
            getattr(raw, method)(*args[1:])  # raises the real AttributeError
        held = _held(world, raw, fn, "fdel" if value is ABSENT else "fset")
        world.trace.calls.call(held, args[1:], {})
        return True
    if kind is types.MemberDescriptorType:
        _store_slot(world, raw, obj, value)
        return True
    if kind is types.GetSetDescriptorType:
        return _store_getset(world, raw, obj, value)
    setter = world.classes.lookup(kind, method)
    if setter is ABSENT:
        raise AttributeError(method)
    world.trace.calls.call(setter, args, {})
    return True


def _store_slot(world: MirrorWorld, raw: Any, obj: Any, value: Any) -> None:
    known = world.slots.get(id(obj))
    if known is not None and raw not in known and _is_own_slot(raw):
        if value is ABSENT:
            _get_slot(world, raw, obj, type(obj))
        else:
            known[raw] = Lazy  # unread: never identical to a value
    if value is ABSENT:
        raw.__delete__(obj)
    else:
        raw.__set__(obj, value)


def _store_getset(world: MirrorWorld, raw: Any, obj: Any, value: Any) -> bool:
    if world.is_preexisting(obj) and not isinstance(obj, BaseException):
        raise graph_break("unsupported-object", f"storing C attribute {raw.__name__} of a {type(obj).__qualname__}")
    if value is ABSENT:
        raw.__delete__(obj)
    else:
        raw.__set__(obj, value)
    return True


def _write(state: LazyDict, obj: Any, name: str, value: Any) -> None:
    if value is not ABSENT:
        state.set(name, value)
    elif not state.delete(name):
        if isinstance(obj, types.ModuleType):
            raise AttributeError(f"module {obj.__name__!r} has no attribute {name!r}", name=name, obj=obj)
        raise AttributeError(f"{type(obj).__name__!r} object has no attribute {name!r}", name=name, obj=obj)


def _store_class(world: MirrorWorld, cls: type, name: str, value: Any) -> None:
    raw, _, data = plan_of(world, type(cls), name)
    if world.is_new(cls):
        if value is ABSENT:
            type.__delattr__(cls, name)
        else:
            type.__setattr__(cls, name, value)
        world.classes.cache.clear()
        world.plans.clear()
        return
    if data or (name.startswith("__") and name.endswith("__")):
        raise graph_break("unsupported-object", f"storing {name} of the class {cls.__qualname__}")
    if cls.__flags__ & (1 << 8):
        type.__setattr__(cls, name, value)  # raises the real TypeError
    if value is ABSENT and name not in cls.__dict__ and name not in world.classes.overlays.get(cls, {}):
        raise AttributeError(f"type object {cls.__name__!r} has no attribute {name!r}", name=name, obj=cls)
    world.classes.store(cls, name, value)


def expand_slots(world: MirrorWorld, obj: Any) -> None:
    """Fill every slot of a stand-in."""
    for raw in slots(type(obj)):
        if raw not in world.slots[id(obj)]:
            try:
                _get_slot(world, raw, obj, type(obj))
            except AttributeError:
                continue


