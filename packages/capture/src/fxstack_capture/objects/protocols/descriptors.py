"""Descriptors found on a class: their binding to instances, and their precedence.

A *plan* describes the attribute lookup of one name on one class. It has three parts: the raw attribute found
along the MRO, the function that binds it, and whether the attribute precedes the instance dictionary. Plans
are cached for the length of a trace. They are not cached once the traced program has changed a class, because
the changes (the overlay of the class) affect them.
"""

from __future__ import annotations

import collections
import functools
import types
from collections.abc import Callable
from typing import Any

from fxstack_capture.breaks import graph_break
from fxstack_capture.callers import calls_program, plainly
from fxstack_capture.guards.records import SlotUnset
from fxstack_capture.native.class_flags import is_heap_type
from fxstack_capture.objects.instances import declares_slots, dict_descriptor, raw_dict, slots
from fxstack_capture.objects.kinds import contexts
from fxstack_capture.sources import BuiltinAttr, SlotAttr
from fxstack_capture.trace.lazy_dict import ABSENT
from fxstack_capture.trace.state import Objects

Getter = Callable[[Objects, Any, Any, type], Any]  # getter(objects, raw, obj, cls)
"""A function that binds a raw class attribute ``raw``. The attribute was loaded from ``obj``, an instance of
``cls``.

``obj`` is None if the attribute was loaded from the class itself.
"""


_COPIED_STATE = frozenset(
    {
        int,
        float,
        complex,
        collections.deque,
        collections.defaultdict,
        collections.OrderedDict,
        functools.partial,
        type({}.keys()),
        type({}.values()),
        type({}.items()),
    }
)
"""C types whose proxies have a complete copy of the original's C state."""


def raw_dict_or_none(obj: object) -> dict[str, Any] | None:
    """Return the instance dictionary of an object that is its own proxy. None if its class has no dictionary.

    Such an object was made in the trace, or comes from outside and is not copied (for example an enum
    member).
    """
    descriptor = dict_descriptor(type(obj))
    return None if descriptor is None else descriptor.__get__(obj)


# --- descriptors found on the type ---------------------------------------------------------------


def get_function(objects: Objects, raw: Any, obj: Any, cls: type) -> Any:
    """Bind a Python function to an instance."""
    return types.MethodType(raw, obj)


def get_plain(objects: Objects, raw: object, obj: object, cls: type) -> Any:
    """Return a class attribute that is not a descriptor."""
    return raw


def _get_native(objects: Objects, raw: Any, obj: Any, cls: type) -> Any:
    """Bind a descriptor of CPython's C code, such as ``list.append``. Binding reads only the object."""
    return raw.__get__(obj, cls)


def _get_by_c(objects: Objects, raw: Any, obj: Any, cls: type) -> Any:
    """Bind a descriptor whose ``__get__`` is C code of a library.

    A descriptor with a ``__set__``, such as a field of ``ctypes``, reads memory that no guard can compare.
    Raises GraphBreak for such a descriptor of an opaque object.
    """
    if id(obj) in objects.opaque and is_data_descriptor(objects, raw):
        description = f"C attribute ({type(raw).__qualname__}) of a {cls.__qualname__}"
        raise graph_break("unsupported-object", description)
    return raw.__get__(obj, cls)


def _get_staticmethod(objects: Objects, raw: Any, obj: object, cls: type) -> Any:
    """Return the function of a ``staticmethod`` object."""
    return held(objects, raw, raw.__func__, "__func__")


class _Bound:
    """A probe that tells whether ``classmethod`` binds the descriptor that it wraps. Before Python 3.13 it
    does.
    """

    def __get__(self, obj: object, cls: type | None = None) -> None:
        return None


_BOUND: Any = _Bound()
_CLASSMETHOD: Any = classmethod(_BOUND)
_BINDS_DESCRIPTORS = _CLASSMETHOD.__get__(None, object) is None


def _get_classmethod(objects: Objects, raw: Any, obj: object, cls: type) -> Any:
    """Bind the function of a ``classmethod`` object to the class."""
    inner = held(objects, raw, raw.__func__, "__func__")
    if type(inner) is types.FunctionType:
        return types.MethodType(inner, cls)
    return (
        bind(objects, inner, cls, type(cls))
        if _BINDS_DESCRIPTORS and hasattr(type(inner), "__get__")
        else types.MethodType(inner, cls)
    )


def get_property(objects: Objects, raw: Any, obj: Any, cls: type) -> Any:
    """Call the getter of a property. The interpreter runs the getter.

    Raises CPython's AttributeError if the property has no getter.
    """
    if obj is None:
        return raw
    if raw.fget is None:
        return plainly(raw.__get__, (obj, cls), {})  # raises the real AttributeError
    return objects.trace.calls.call(held(objects, raw, raw.fget, "fget"), (obj,), {})


def get_cached_property(objects: Objects, raw: Any, obj: Any, cls: type) -> Any:
    """Return the value of a ``functools.cached_property``. The value is computed and stored in the instance
    dictionary.

    Called only if the instance dictionary has no value yet.
    """
    if obj is None:
        return raw
    value = objects.trace.calls.call(held(objects, raw, raw.func, "func"), (obj,), {})
    state = objects.instances.get(id(obj))
    if state is not None:
        state.put(raw.attrname, value)
    else:
        raw_dict(obj)[raw.attrname] = value
    return value


@calls_program
def get_slot(objects: Objects, raw: Any, obj: Any, cls: type) -> Any:
    """Read a ``__slots__`` member.

    The first read from a proxy wraps the original content. For an empty slot, raises the real AttributeError
    and guards that the slot is empty.
    """
    if obj is None:
        return raw
    contents_at_read = objects.slots.get(id(obj))
    if id(obj) in objects.opaque and is_heap_type(raw.__objclass__):
        return _slot_of_opaque(objects, raw, obj)
    if contents_at_read is None or raw in contents_at_read or not is_own_slot(raw):
        return raw.__get__(obj, cls)
    entry = objects.registry.by_proxy[id(obj)]
    try:
        value = raw.__get__(entry.original)
    except AttributeError:
        objects.trace.guard(entry.source, SlotUnset(raw.__objclass__, raw.__name__))
        contents_at_read[raw] = ABSENT
        return raw.__get__(obj, cls)
    proxy = contents_at_read[raw] = objects.enter(
        value, SlotAttr(entry.source, raw.__objclass__, raw.__name__)
    )
    raw.__set__(obj, proxy)
    return proxy


@calls_program
def _slot_of_opaque(objects: Objects, raw: Any, obj: Any) -> Any:
    """Load a slot of an object that is its own proxy (``objects.opaque``).

    Raises GraphBreak if the class no longer has the slot under its name.
    """
    owner, name = raw.__objclass__, raw.__name__
    # The program may delete the slot descriptor from the class. The instances keep their slot values.
    if vars(owner).get(name) is not raw:
        raise graph_break("unsupported-object", f"slot {name} of a {type(obj).__qualname__}")
    source = objects.registry.by_proxy[id(obj)].source
    try:
        value = raw.__get__(obj)
    except AttributeError:
        objects.trace.guard(source, SlotUnset(owner, name))
        raise
    return objects.enter(value, SlotAttr(source, owner, name))


def is_own_slot(raw: Any) -> bool:
    """Whether the member descriptor ``raw`` belongs to ``__slots__``. Otherwise it belongs to a field of a C
    type.
    """
    return declares_slots(raw.__objclass__)


_TRACEBACK = BaseException.__dict__["__traceback__"]

_OF_RUNNING_FRAMES = frozenset(
    vars(types.FrameType)[name] for name in ("f_locals", "f_lineno", "f_lasti", "f_trace")
)
"""Attributes of a frame object that change while the frame runs."""


def get_getset(objects: Objects, raw: Any, obj: Any, cls: type) -> Any:
    """Read an attribute that C code computes. Raises GraphBreak if the value cannot be guarded."""
    if obj is None:
        return raw
    if id(obj) in objects.contexts:
        return contexts.load(objects, raw, obj)
    if raw.__name__ == "__dict__":
        return raw.__get__(obj, cls)  # the ``__dict__`` of a proxy is its lazy dictionary
    entry = objects.registry.by_proxy.get(id(obj))
    if entry is None or raw.__name__ == "__class__":
        return raw.__get__(obj, cls)
    if raw in _OF_RUNNING_FRAMES:
        raise graph_break("unsupported-object", f"{raw.__name__} of a frame")
    if entry.original is obj:
        value = raw.__get__(obj, cls)
        return objects.enter(value, BuiltinAttr(entry.source, raw.__name__))
    if raw is _TRACEBACK:
        # The frames in a traceback are those of one run.
        raise graph_break(
            "unsupported-object", "the traceback of an exception from outside of the compiled code"
        )
    if isinstance(obj, BaseException) or raw.__objclass__ in _COPIED_STATE:
        return raw.__get__(obj, cls)
    if raw.__name__ == "__weakref__":
        return raw.__get__(obj, cls)
    raise graph_break("unsupported-object", f"C attribute {raw.__name__} of a {cls.__qualname__}")


def _get_user(objects: Objects, raw: object, obj: object, cls: type) -> Any:
    """Bind through a ``__get__`` that is written in Python."""
    get = objects.classes.lookup(type(raw), "__get__")
    return objects.trace.calls.call(get, (raw, obj, cls), {})


def held(objects: Objects, holder: object, value: object, name: str) -> Any:
    """Return the callable that the descriptor ``holder`` stores in its attribute ``name``, as an object of
    the trace.

    ``value`` is this callable. A function needs no guard, because the identity of the descriptor determines
    it.
    """
    entry = objects.registry.by_proxy.get(id(holder))
    if entry is None or value is None:
        return value
    if type(value) is types.FunctionType:
        return objects.registry.add_itself(value, BuiltinAttr(entry.source, name))
    return objects.enter(value, BuiltinAttr(entry.source, name))


_GETTERS: dict[type, Getter] = {
    types.FunctionType: get_function,
    staticmethod: _get_staticmethod,
    classmethod: _get_classmethod,
    property: get_property,
    functools.cached_property: get_cached_property,
    types.MemberDescriptorType: get_slot,
    types.GetSetDescriptorType: get_getset,
    types.MethodDescriptorType: _get_native,
    types.WrapperDescriptorType: _get_native,
    types.ClassMethodDescriptorType: _get_native,
    types.BuiltinFunctionType: get_plain,
}
"""Maps exact types of class attributes to the functions that bind them."""
_INHERITED = {kind.__dict__["__get__"]: _GETTERS[kind] for kind in (property, staticmethod, classmethod)}
"""Binding functions for subclasses of these types. They are selected by the ``__get__`` that the subclass
inherits.
"""


def getter_of(objects: Objects, raw: object) -> Getter:
    """Return the function that binds a raw class attribute. The result is ``get_plain`` if the attribute is
    no descriptor.
    """
    kind = type(raw)
    getter = _GETTERS.get(kind)
    if getter is not None:
        return getter
    get = objects.classes.lookup(kind, "__get__")
    if get is ABSENT:
        return get_plain
    return _get_user if type(get) is types.FunctionType else _INHERITED.get(get, _get_by_c)


def bind(objects: Objects, raw: object, obj: object, cls: type) -> Any:
    """Bind a raw class attribute to ``obj`` with the function for its type."""
    return getter_of(objects, raw)(objects, raw, obj, cls)


def is_data_descriptor(objects: Objects, raw: object) -> bool:
    """Whether the type of ``raw`` has ``__set__`` or ``__delete__``.

    A load then prefers ``raw`` to the entry of the instance dictionary.
    """
    kind = type(raw)
    if kind is types.FunctionType:
        return False
    lookup = objects.classes.lookup
    return lookup(kind, "__set__") is not ABSENT or lookup(kind, "__delete__") is not ABSENT


def _plan(objects: Objects, cls: type, name: str) -> tuple[Any, Getter | None, bool]:
    """Make the plan of an attribute. ``plan_of`` returns it."""
    raw = objects.classes.lookup(cls, name)
    if raw is ABSENT:
        plan: tuple[Any, Getter | None, bool] = (ABSENT, None, False)
    else:
        getter = getter_of(objects, raw)
        plan = (raw, getter, getter is not get_plain and is_data_descriptor(objects, raw))
    # A later write to a class changes the overlay of the class. No table says which plans depend on an
    # overlay.
    if not objects.classes.overlays:
        objects.classes.plans[(cls, name)] = plan
    return plan


def plan_of(objects: Objects, cls: type, name: str) -> tuple[Any, Any, bool]:
    """Return the plan of an attribute. Every load and store begins with it.

    A plan has three parts: the raw attribute or ABSENT, the function that binds it or None, and whether the
    attribute precedes the instance dictionary.
    """
    if objects.classes.overlays:
        return _plan(objects, cls, name)
    return objects.classes.plans.get((cls, name)) or _plan(objects, cls, name)


def write_target(objects: Objects, cls: type, name: str) -> Any:
    """Return the data descriptor that receives a store to ``name``, or ABSENT if the instance dictionary
    receives it.

    A data descriptor may lack ``__get__``. It receives stores, although a load reads the instance dictionary
    first.
    """
    raw, getter, data = plan_of(objects, cls, name)
    if data or (getter is get_plain and is_data_descriptor(objects, raw)):
        return raw
    return ABSENT


def expand_slots(objects: Objects, obj: object) -> None:
    """Fill every slot of a proxy, before C code reads the proxy. Empty slots stay empty.

    ``Objects.expand`` calls this.
    """
    for raw in slots(type(obj)):
        if raw not in objects.slots[id(obj)]:
            try:
                get_slot(objects, raw, obj, type(obj))
            except AttributeError:
                continue
