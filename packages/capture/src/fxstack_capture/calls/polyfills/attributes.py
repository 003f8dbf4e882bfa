"""Requests for attribute access: properties, descriptors and hooks.

A result of None stands for no request: the C code itself runs.
"""

from __future__ import annotations

import types
from collections.abc import Callable
from typing import Any

import torch

from fxstack_capture.calls.operators.plain_objects import is_ours
from fxstack_capture.calls.polyfills.special_methods import special
from fxstack_capture.interpreter import polyfills as polyfill
from fxstack_capture.native.class_flags import is_heap_type
from fxstack_capture.numpy_side.array import Array
from fxstack_capture.objects.protocols.descriptors import (
    get_cached_property,
    get_property,
    held,
    plan_of,
    raw_dict_or_none,
)
from fxstack_capture.objects.protocols.loads import LOADERS, is_generic
from fxstack_capture.trace.lazy_dict import ABSENT
from fxstack_capture.trace.state import Calls, Request

Maker = Callable[..., Request | None]
"""A function that returns the request for the operands of one kind of step. None if the C code itself can
run.
"""


def attribute(calls: Calls, obj: object, name: str) -> Request | None:
    """Return the request for ``obj.name``. None if reading the attribute calls no function of the program."""
    objects = calls.objects
    if not _has_attributes(obj):
        return None
    cls = type(obj)
    hook = plan_of(objects, cls, "__getattr__")[0]
    if hook is not ABSENT and type(hook) is not types.FunctionType:
        return None
    custom = plan_of(objects, cls, "__getattribute__")[0]
    if type(custom) is types.FunctionType:
        getter_call: Request | None = (custom, (obj, name))
    elif is_generic(custom):
        getter_call = _from_class(calls, obj, name)
        if getter_call is None:
            lacks = plan_of(objects, cls, name)[0] is ABSENT and _own(calls, obj, name) is ABSENT
            return (hook, (obj, name)) if lacks and hook is not ABSENT else None
    else:
        return None
    assert getter_call is not None
    return getter_call if hook is ABSENT else (polyfill.attribute, (*getter_call, hook, obj, name))


def _has_attributes(obj: object) -> bool:
    """Whether ``obj`` is an instance of a class that may define attribute access in Python."""
    if isinstance(obj, (type, types.ModuleType, torch.Tensor)) or type(obj) is Array:
        return False
    return type(obj) not in LOADERS and is_heap_type(type(obj)) and not is_ours(obj)


def _from_class(calls: Calls, obj: object, name: str) -> Request | None:
    """Return the request that calls the getter of a property or the ``__get__`` of a Python descriptor."""
    objects, cls = calls.objects, type(obj)
    raw, getter, data = plan_of(objects, cls, name)
    if raw is ABSENT or (not data and _own(calls, obj, name) is not ABSENT):
        return None
    if getter is get_property:
        return None if raw.fget is None else (held(objects, raw, raw.fget, "fget"), (obj,))
    if getter is get_cached_property:
        return polyfill.get_cached_property, (held(objects, raw, raw.func, "func"), obj, raw.attrname)
    get = objects.classes.lookup(type(raw), "__get__")
    return (get, (raw, obj, cls)) if type(get) is types.FunctionType else None


def _own(calls: Calls, obj: object, name: str) -> Any:
    """Return the value of ``name`` in the instance dictionary of ``obj``, or ABSENT.

    If the dictionary is not known, the result is not ABSENT. Then no request is made.
    """
    state = calls.objects.instances.get(id(obj))
    if state is not None:
        return state.get(name)
    if calls.objects.source_of(obj) is not None:
        return None
    own = raw_dict_or_none(obj)
    return ABSENT if own is None else own.get(name, ABSENT)


def store(calls: Calls, obj: object, name: str, value: object) -> Request | None:
    """Return the request for ``obj.name = value``."""
    return _to_descriptor(calls, obj, name, ("__setattr__", "fset", "__set__"), (value,))


def delete(calls: Calls, obj: object, name: str) -> Request | None:
    """Return the request for ``del obj.name``."""
    return _to_descriptor(calls, obj, name, ("__delattr__", "fdel", "__delete__"), ())


def _to_descriptor(
    calls: Calls, obj: object, name: str, names: tuple[str, str, str], value: tuple[Any, ...]
) -> Request | None:
    """Return the request to store or delete an attribute through a hook of the class or a descriptor.

    ``names`` are three names: of the hook of the class, of the accessor of a property, and of the method of a
    descriptor. An example is ``("__setattr__", "fset", "__set__")``. ``value`` is () for a deletion.
    """
    hook, accessor, descriptor_hook = names
    if not _has_attributes(obj):
        return None
    custom = special(calls, obj, hook)
    if custom is not None:
        return custom, (obj, name, *value)
    raw = plan_of(calls.objects, type(obj), name)[0]
    if raw is ABSENT or calls.objects.classes.lookup(type(obj), hook) is not getattr(object, hook):
        return None
    method = calls.objects.classes.lookup(type(raw), descriptor_hook)
    if method is getattr(property, descriptor_hook):  # a property, or a subclass that inherits the method
        fn = getattr(raw, accessor)
        return None if fn is None else (held(calls.objects, raw, fn, accessor), (obj, *value))
    return (method, (raw, obj, *value)) if type(method) is types.FunctionType else None
