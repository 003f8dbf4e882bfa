"""Mirrors of instances of classes: a bare instance of the same class, filled attribute by
attribute.

Instances of subclasses of builtin containers get their items at once, like exact containers.
"""

from __future__ import annotations

import collections
import types
from contextlib import suppress
from typing import TYPE_CHECKING, Any

from fxstack_capture.guards.records import IdentityIs, KeysAre, LengthIs, TypeIs
from fxstack_capture.objects.class_flags import is_heap_type
from fxstack_capture.objects.constants import is_constant_key, is_value
from fxstack_capture.objects.instances import (
    dict_descriptor,
    is_bare,
    may_be_bare,
    native_new,
    slots,
    without_finalizer,
)
from fxstack_capture.objects.protocols.descriptors import raw_dict
from fxstack_capture.sources import BuiltinAttr, Item, Key, KeyAt, SlotAttr, ValueAt

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from fxstack_capture.objects.object_model import MirrorWorld
    from fxstack_capture.sources import Source

    Handler = Callable[[MirrorWorld, Any, Source], Any]


def handler(cls: type) -> Handler | None:
    """How instances of ``cls`` enter; None when their state is out of reach."""
    base, _ = native_new(cls)
    if not may_be_bare(cls):
        return None
    if base is object and not is_bare(cls):
        return None
    if base is tuple and not is_heap_type(cls):
        return None  # structured sequences of the interpreter itself, such as sys.flags
    return _BY_BASE.get(base) or (exception if issubclass(cls, BaseException) else None)


def register(world: MirrorWorld, obj: Any, standin: Any, source: Source) -> Any:
    """Enter the pair and prepare lazy reads of the instance's dictionary and slots."""
    world.registry.add(obj, standin, source)
    cls = type(obj)
    without_finalizer(standin)
    if dict_descriptor(cls) is not None:
        world.add_instance(standin, raw_dict(obj), source)
    if slots(cls):
        world.slots[id(standin)] = {}
    return standin


def enter_member(world: MirrorWorld, obj: Any, source: Source, owner: type, name: str) -> Any:
    """What a class written in C keeps in ``obj``, though a subclass may have hidden it by something of that name."""
    return world.enter(owner.__dict__[name].__get__(obj), SlotAttr(source, owner, name))


def plain(world: MirrorWorld, obj: Any, source: Source) -> Any:
    world.trace.guard(source, TypeIs(type(obj)))
    return register(world, obj, object.__new__(type(obj)), source)


def exception(world: MirrorWorld, obj: BaseException, source: Source) -> Any:
    """An exception made outside: its arguments and those it is chained to enter, its traceback does
    not.
    """
    cls = type(obj)
    world.trace.guard(source, TypeIs(cls))
    args = enter_member(world, obj, source, BaseException, "args")
    base, new = native_new(cls)
    standin = new(cls, *args)
    base.__init__(standin, *args)  # type: ignore[misc]
    BaseException.__dict__["args"].__set__(standin, args)
    register(world, obj, standin, source)
    for name in ("__cause__", "__context__"):
        chained = BaseException.__dict__[name]
        entered = world.enter(chained.__get__(obj), BuiltinAttr(source, name))
        if entered is not None:
            chained.__set__(standin, entered)
    _enter_members(world, obj, standin, source)
    suppressed = enter_member(world, obj, source, BaseException, "__suppress_context__")
    BaseException.__dict__["__suppress_context__"].__set__(standin, suppressed)
    return standin


def _enter_members(
    world: MirrorWorld, obj: BaseException, standin: BaseException, source: Source
) -> None:
    """What classes written in C keep beside the arguments: ``errno``, ``name``, ``value``, ``lineno``, ..."""
    for owner in type.__dict__["__mro__"].__get__(type(obj)):
        if is_heap_type(owner):
            continue
        for name, member in vars(owner).items():
            if type(member) is not types.MemberDescriptorType or name.startswith("_"):
                continue
            entered = world.enter(member.__get__(obj), SlotAttr(source, owner, name))
            if member.__get__(standin) is not entered:
                with suppress(AttributeError):  # read-only: made from the arguments
                    member.__set__(standin, entered)


def value_subclass(world: MirrorWorld, obj: Any, source: Source) -> Any:
    """Subclass of an immutable builtin (str, int, ...): fixed by identity."""
    base, new = native_new(type(obj))
    world.trace.guard(source, IdentityIs(obj, id(obj)))
    plain_value = base.__str__(obj) if base is str else _plain_value(base, obj)
    return register(world, obj, new(type(obj), plain_value), source)


def _plain_value(base: type, obj: Any) -> Any:
    if base is bytes:
        return bytes.__getitem__(obj, slice(None))
    if base is complex:
        return complex.__pos__(obj)
    return float.__pos__(obj) if base is float else int.__index__(obj)


def tuple_subclass(world: MirrorWorld, obj: Any, source: Source) -> Any:
    standin = tuple.__new__(type(obj), _items(world, obj, tuple.__iter__(obj), source))
    return register(world, obj, standin, source)


def list_subclass(world: MirrorWorld, obj: Any, source: Source) -> Any:
    standin = list.__new__(type(obj))
    register(world, obj, standin, source)
    list.extend(standin, _items(world, obj, list.__iter__(obj), source))
    world.contents[id(standin)] = tuple(list.__iter__(standin))
    return standin


def deque_subclass(world: MirrorWorld, obj: Any, source: Source) -> Any:
    native = collections.deque
    standin = native.__new__(type(obj))
    native.__init__(standin, (), native.__dict__["maxlen"].__get__(obj))
    register(world, obj, standin, source)
    native.extend(standin, _items(world, obj, native.__iter__(obj), source))
    world.contents[id(standin)] = tuple(native.__iter__(standin))
    return standin


def _items(world: MirrorWorld, obj: Any, iterator: Any, source: Source) -> list[Any]:
    world.trace.guard(source, TypeIs(type(obj)))
    values = list(iterator)
    world.trace.guard(source, LengthIs(len(values)))
    return [world.enter(value, Item(source, index)) for index, value in enumerate(values)]


def set_subclass(world: MirrorWorld, obj: Any, source: Source) -> Any:
    base, new = native_new(type(obj))
    world.trace.guard(source, TypeIs(type(obj)))
    members = tuple(base.__iter__(obj))  # type: ignore[attr-defined]
    if members and all(map(is_constant_key, members)):
        world.trace.guard(source, KeysAre(members))
    else:
        world.trace.guard(source, LengthIs(len(members)))
    entered = [
        m if is_constant_key(m) else world.enter(m, KeyAt(source, i)) for i, m in enumerate(members)
    ]
    calls = world.trace.calls
    if base is frozenset:
        with calls.without_effects(members):
            standin = calls.watched(new, type(obj), entered)
        return register(world, obj, standin, source)
    standin = new(type(obj))
    register(world, obj, standin, source)
    with calls.without_effects(members):
        calls.watched(set.update, standin, entered)
    world.contents[id(standin)] = tuple(set.__iter__(standin))
    return standin


def dict_subclass(world: MirrorWorld, obj: Any, source: Source) -> Any:
    """OrderedDict, defaultdict, Counter and the user's: expanded at once through the C-level
    accessors.
    """
    base: Any = next(b for b in _DICTS if issubclass(type(obj), b))
    world.trace.guard(source, TypeIs(type(obj)))
    standin = native_new(type(obj))[1](type(obj))
    register(world, obj, standin, source)
    if base is collections.defaultdict:
        factory = enter_member(world, obj, source, base, "default_factory")
        base.__dict__["default_factory"].__set__(standin, factory)
    keys = tuple(base.__iter__(obj))
    world.trace.guard(source, KeysAre(keys) if keys else LengthIs(0))
    with world.trace.calls.without_effects(keys):
        _fill_dict(world, base, standin, source, list(zip(keys, base.values(obj), strict=True)))
    world.contents[id(standin)] = tuple(dict.items(standin))
    return standin


def _fill_dict(
    world: MirrorWorld,
    base: Any,
    standin: Any,
    source: Source,
    items: Iterable[tuple[object, object]],
) -> None:
    for index, (key, found) in enumerate(items):
        where = Key(source, key) if is_value(key) else ValueAt(source, index)
        entered = key if is_constant_key(key) else world.enter(key, KeyAt(source, index))
        value = world.enter(found, where)
        if entered is key:
            base.__setitem__(standin, key, value)
        else:
            world.trace.calls.watched(base.__setitem__, standin, entered, value)


def simple_namespace(world: MirrorWorld, obj: Any, source: Source) -> Any:
    world.trace.guard(source, TypeIs(type(obj)))
    return register(world, obj, types.SimpleNamespace.__new__(type(obj)), source)


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
