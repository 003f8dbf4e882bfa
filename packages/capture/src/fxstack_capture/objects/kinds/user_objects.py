"""Proxies of instances of classes. A proxy is a bare instance of the same class, filled attribute by
attribute.

An instance of a subclass of a builtin container has items. They are wrapped at once, as for the builtin
container.
"""

from __future__ import annotations

import collections
import types
from collections.abc import Callable, Iterable
from contextlib import suppress
from typing import Any

from fxstack_capture.guards.records import IdentityIs, KeysAre, LengthIs, SameObject, TypeIs
from fxstack_capture.native.class_flags import is_heap_type
from fxstack_capture.objects.instances import (
    dict_descriptor,
    is_bare,
    may_be_bare,
    native_new,
    raw_dict,
    slots,
    without_finalizer,
)
from fxstack_capture.objects.kinds.containers import items
from fxstack_capture.sources import BuiltinAttr, InstanceDict, Key, KeyAt, SlotAttr, Source, ValueAt
from fxstack_capture.trace.constants import is_constant_key, is_value
from fxstack_capture.trace.state import Objects

Handler = Callable[[Objects, Any, Source], Any]
"""A function that wraps one kind of object. It adds guards on the object at the source and returns the proxy."""


# Limits: some objects of subclasses of threading.local end the graph where they are read, because a guard may
# run their code. Their class has slots, attribute methods of its own, or an __init__ that does more than set
# attributes to constants. A __getattribute__ with side effects, or a property __class__ with side effects,
# runs additional times where the tracer calls isinstance.


def handler(cls: type) -> Handler | None:
    """Return the function that wraps instances of ``cls``.

    Return None if the state of instances cannot be read. The caller then wraps them as opaque objects or as
    iterators.
    """
    base, _ = native_new(cls)
    if not may_be_bare(cls):
        return None
    if base is object and not is_bare(cls):
        return None
    if base is tuple and not is_heap_type(cls):
        return None  # structured sequences of the interpreter, such as sys.flags, cannot be made
    return _BY_BASE.get(base) or (exception if issubclass(cls, BaseException) else None)


def _add_instance(objects: Objects, proxy: object, original: dict[str, Any], source: Source) -> None:
    """Prepare lazy reads of ``original``, the instance dictionary of the object that ``proxy`` represents.

    Objects may share one dictionary (the Borg pattern). Their proxies then share one lazy state.
    """
    shared = objects.registry.by_original.get(id(original))
    if shared is not None:
        objects.trace.guard(InstanceDict(source), SameObject(shared.source))
        dict_descriptor(type(proxy)).__set__(proxy, shared.proxy)
        objects.instances[id(proxy)] = objects.dicts[id(shared.proxy)]
        return
    objects.add_instance_dict(proxy, original, raw_dict(proxy), InstanceDict(source))


def register(objects: Objects, obj: object, proxy: object, source: Source) -> Any:
    """Add the object and its proxy to the registry. Prepare lazy reads of the instance dictionary and the
    slots.

    Return ``proxy``. Every wrapping function below calls this function. It also prevents the finalizer of the
    proxy from running.
    """
    objects.registry.add(obj, proxy, source)
    cls = type(obj)
    without_finalizer(proxy)
    if dict_descriptor(cls) is not None:
        _add_instance(objects, proxy, raw_dict(obj), source)
    if slots(cls):
        objects.slots[id(proxy)] = {}
    return proxy


def enter_member(objects: Objects, obj: object, source: Source, owner: type, name: str) -> Any:
    """Wrap the value of a member that the C class ``owner`` stores in ``obj``, such as ``partial.func``."""
    # A subclass may hide the member, so read it by the descriptor of ``owner``.
    return objects.enter(owner.__dict__[name].__get__(obj), SlotAttr(source, owner, name))


def plain(objects: Objects, obj: object, source: Source) -> Any:
    """Wrap an instance of a class without a builtin base. No attribute is read yet."""
    objects.trace.guard(source, TypeIs(type(obj)))
    return register(objects, obj, object.__new__(type(obj)), source)


def exception(objects: Objects, obj: BaseException, source: Source) -> Any:
    """Wrap an exception that was made outside of the frame.

    Its arguments and its chained exceptions are wrapped; its traceback is not.
    """
    cls = type(obj)
    objects.trace.guard(source, TypeIs(cls))
    args = enter_member(objects, obj, source, BaseException, "args")
    base, new = native_new(cls)
    proxy = new(cls, *args)
    base.__init__(proxy, *args)
    # Some constructors in C change ``args``. For example, OSError with a file name keeps two of three
    # arguments.
    BaseException.__dict__["args"].__set__(proxy, args)
    register(objects, obj, proxy, source)
    for name in ("__cause__", "__context__"):
        chained = BaseException.__dict__[name]
        entered = objects.enter(chained.__get__(obj), BuiltinAttr(source, name))
        if entered is not None:
            chained.__set__(proxy, entered)
    _enter_members(objects, obj, proxy, source)
    suppressed = enter_member(objects, obj, source, BaseException, "__suppress_context__")
    BaseException.__dict__["__suppress_context__"].__set__(proxy, suppressed)
    return proxy


def _enter_members(objects: Objects, obj: BaseException, proxy: BaseException, source: Source) -> None:
    """Wrap the members that C classes store besides the arguments, such as ``errno`` and ``lineno``.

    The wrapped members are stored in ``proxy``.
    """
    for owner in type.__dict__["__mro__"].__get__(type(obj)):
        if is_heap_type(owner):
            continue
        for name, member in vars(owner).items():
            if type(member) is not types.MemberDescriptorType or name.startswith("_"):
                continue
            entered = objects.enter(member.__get__(obj), SlotAttr(source, owner, name))
            if member.__get__(proxy) is not entered:
                with suppress(AttributeError):  # a read-only member is computed from the arguments
                    member.__set__(proxy, entered)


def value_subclass(objects: Objects, obj: object, source: Source) -> Any:
    """Wrap an instance of a subclass of an immutable builtin (str, int, ...) and guard its identity."""
    base, new = native_new(type(obj))
    objects.trace.guard(source, IdentityIs(obj, id(obj)))
    plain_value = base.__str__(obj) if base is str else _plain_value(base, obj)
    return register(objects, obj, new(type(obj), plain_value), source)


def _plain_value(base: type, obj: Any) -> Any:
    """Return the value of ``obj`` as an instance of the builtin ``base``. No method of the subclass is
    called.
    """
    if base is bytes:
        return bytes.__getitem__(obj, slice(None))
    if base is complex:
        return complex.__pos__(obj)
    return float.__pos__(obj) if base is float else int.__index__(obj)


def tuple_subclass(objects: Objects, obj: Any, source: Source) -> Any:
    """Wrap an instance of a subclass of tuple, such as a named tuple, and its items."""
    proxy = tuple.__new__(type(obj), items(objects, obj, tuple.__iter__(obj), source))
    return register(objects, obj, proxy, source)


def list_subclass(objects: Objects, obj: Any, source: Source) -> Any:
    """Wrap an instance of a subclass of list and its items. No method of the subclass is called."""
    proxy = list.__new__(type(obj))
    # Register the proxy before wrapping the items, because the list may contain itself.
    register(objects, obj, proxy, source)
    list.extend(proxy, items(objects, obj, list.__iter__(obj), source))
    objects.contents[id(proxy)] = tuple(list.__iter__(proxy))
    return proxy


def deque_subclass(objects: Objects, obj: Any, source: Source) -> Any:
    """Wrap an instance of a subclass of deque and its items. No method of the subclass is called."""
    native = collections.deque
    proxy = native.__new__(type(obj))
    native.__init__(proxy, (), native.__dict__["maxlen"].__get__(obj))
    register(objects, obj, proxy, source)
    native.extend(proxy, items(objects, obj, native.__iter__(obj), source))
    objects.contents[id(proxy)] = tuple(native.__iter__(proxy))
    return proxy


def set_subclass(objects: Objects, obj: object, source: Source) -> Any:
    """Wrap an instance of a subclass of set or frozenset and its members."""
    base, new = native_new(type(obj))
    objects.trace.guard(source, TypeIs(type(obj)))
    members = tuple(base.__iter__(obj))
    if members and all(map(is_constant_key, members)):
        objects.trace.guard(source, KeysAre(members))
    else:
        objects.trace.guard(source, LengthIs(len(members)))
    entered = [m if is_constant_key(m) else objects.enter(m, KeyAt(source, i)) for i, m in enumerate(members)]
    calls = objects.trace.calls
    if base is frozenset:
        with calls.without_effects(members):
            proxy = calls.watched(new, type(obj), entered)
        return register(objects, obj, proxy, source)
    proxy = new(type(obj))
    register(objects, obj, proxy, source)
    with calls.without_effects(members):
        calls.watched(set.update, proxy, entered)
    objects.contents[id(proxy)] = tuple(set.__iter__(proxy))
    return proxy


def dict_subclass(objects: Objects, obj: object, source: Source) -> Any:
    """Wrap an instance of OrderedDict, defaultdict or Counter, or of another subclass of dict.

    All items are wrapped at once. They are read by C methods.
    """
    base: Any = next(b for b in _DICTS if issubclass(type(obj), b))
    objects.trace.guard(source, TypeIs(type(obj)))
    proxy = native_new(type(obj))[1](type(obj))
    register(objects, obj, proxy, source)
    if base is collections.defaultdict:
        factory = enter_member(objects, obj, source, base, "default_factory")
        base.__dict__["default_factory"].__set__(proxy, factory)
    keys = tuple(base.__iter__(obj))
    objects.trace.guard(source, KeysAre(keys) if keys else LengthIs(0))
    with objects.trace.calls.without_effects(keys):
        _fill_dict(objects, base, proxy, source, list(zip(keys, base.values(obj), strict=True)))
    objects.contents[id(proxy)] = tuple(dict.items(proxy))
    return proxy


def _fill_dict(
    objects: Objects, base: Any, proxy: Any, source: Source, items: Iterable[tuple[object, object]]
) -> None:
    """Store wrapped keys and values in ``proxy``.

    ``base`` is the C class whose ``__setitem__`` stores them. If a key has a ``__hash__`` of the program, the
    interpreter runs it.
    """
    for index, (key, original) in enumerate(items):
        value_source = Key(source, key) if is_value(key) else ValueAt(source, index)
        entered = key if is_constant_key(key) else objects.enter(key, KeyAt(source, index))
        value = objects.enter(original, value_source)
        if entered is key:
            base.__setitem__(proxy, key, value)
        else:
            objects.trace.calls.watched(base.__setitem__, proxy, entered, value)


def simple_namespace(objects: Objects, obj: object, source: Source) -> Any:
    """Wrap a ``types.SimpleNamespace``. Its attributes are read lazily."""
    objects.trace.guard(source, TypeIs(type(obj)))
    return register(objects, obj, types.SimpleNamespace.__new__(type(obj)), source)


_DICTS = (collections.OrderedDict, collections.defaultdict, dict)

_BY_BASE: dict[type, Handler] = {
    object: plain,
    tuple: tuple_subclass,
    list: list_subclass,
    dict: dict_subclass,
    collections.OrderedDict: dict_subclass,
    collections.defaultdict: dict_subclass,
    set: set_subclass,
    frozenset: set_subclass,
    collections.deque: deque_subclass,
    str: value_subclass,
    int: value_subclass,
    float: value_subclass,
    complex: value_subclass,
    bytes: value_subclass,
    types.SimpleNamespace: simple_namespace,
}
"""Maps the C class whose ``__new__`` makes the instance to the function that wraps the instance."""
