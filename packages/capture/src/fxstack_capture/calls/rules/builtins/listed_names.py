"""``dir`` and ``__dir__``: the names of the attributes of an object, a class or a module.

The guards check the names, but not the values.
"""

from __future__ import annotations

import types
from typing import Any, Final

import torch

from fxstack_capture.breaks import graph_break
from fxstack_capture.calls.native_run import run
from fxstack_capture.calls.rules import RULES
from fxstack_capture.calls.rules.builtins.classes import class_of
from fxstack_capture.guards.records import Equals
from fxstack_capture.numpy_side.array import Array
from fxstack_capture.objects.instances import dict_descriptor
from fxstack_capture.sources import Converted, pinned
from fxstack_capture.trace.lazy_dict import ABSENT
from fxstack_capture.trace.state import Args, Kwargs, Trace

_OF_CLASS: Final[Any] = type.__dict__["__dir__"]
_OF_OBJECT: Final[Any] = object.__dict__["__dir__"]
_OF_MODULE: Final[Any] = vars(types.ModuleType)["__dir__"]
_JOINED: Final[Any] = "\0".join
_NAMESPACE: Final[Any] = vars(types.ModuleType)["__dict__"]


def listed_names(trace: Trace, obj: object) -> Any:
    """Return ``dir(obj)``. Break the graph for a tensor, for an array, and for a ``__dir__`` written in C by
    another class.
    """
    if isinstance(obj, (torch.Tensor, Array)):
        raise graph_break("unsupported-call", f"dir of a {class_of(trace, obj).__name__}")
    cls = type(obj)
    raw = trace.objects.classes.lookup(cls, "__dir__")
    if type(raw) is types.FunctionType or raw in (_OF_CLASS, _OF_OBJECT, _OF_MODULE):
        return run(trace, sorted, (trace.calls.call(raw, (obj,), {}),), {})
    raise graph_break("unsupported-call", f"dir of a {cls.__qualname__}")


@RULES.rule(_OF_CLASS)
def _names_of_class(trace: Trace, _fn: object, args: Args, kwargs: Kwargs) -> list[str]:
    """Return the names of the attributes of a class, and guard them. Break the graph if the trace has changed
    the class.
    """
    if len(args) != 1 or kwargs or not isinstance(args[0], type):
        result: list[str] = run(trace, _OF_CLASS, args, kwargs)
        return result
    objects = trace.objects
    bases = type.__dict__["__mro__"].__get__(args[0])
    if any(base in objects.classes.overlays for base in bases):
        raise graph_break("unsupported-call", "dir of a class that was changed")
    names: list[str] = _OF_CLASS(args[0])
    if not all(map(objects.is_new, bases[:1])):
        # All names are joined into one string, so that one guard compares them.
        listed = Converted(pinned(args[0], args[0].__qualname__), _OF_CLASS)
        trace.guard(Converted(listed, _JOINED), Equals(_JOINED(names)))
    return names


@RULES.rule(_OF_OBJECT)
def _names_of_object(trace: Trace, _fn: object, args: Args, kwargs: Kwargs) -> list[str]:
    """Return the names of the attributes of an object and of its class, and guard them. Break the graph if
    the class defines ``__dict__`` or ``__class__``.
    """
    if len(args) != 1 or kwargs:
        result: list[str] = run(trace, _OF_OBJECT, args, kwargs)
        return result
    objects = trace.objects
    obj = args[0]
    for name in ("__dict__", "__class__"):
        descriptor = objects.classes.lookup(type(obj), name)
        if not isinstance(descriptor, (types.GetSetDescriptorType, types.MemberDescriptorType)):
            if name == "__dict__" and descriptor is ABSENT:
                continue
            raise graph_break("unsupported-call", f"dir of an object that defines {name}")
    of_class = trace.calls.call(_OF_CLASS, (type(obj),), {})
    return list({*_own_names(trace, obj), *of_class})


def _own_names(trace: Trace, obj: object) -> set[str]:
    """Return the names in the instance dictionary of ``obj``."""
    objects = trace.objects
    if dict_descriptor(type(obj)) is None:
        return set()
    state = objects.instances.get(id(obj))
    return set(objects.load_attr(obj, "__dict__")) if state is None else state.names()


@RULES.rule(_OF_MODULE)
def _names_of_module(trace: Trace, _fn: object, args: Args, kwargs: Kwargs) -> Any:
    """Return the names in a module, or the result of its ``__dir__``. Break the graph for a subclass of the
    module type.
    """
    if len(args) != 1 or kwargs or type(args[0]) is not types.ModuleType:
        raise graph_break("unsupported-call", "dir of a module of a class of its own")
    state = trace.objects.namespace(_NAMESPACE.__get__(args[0]))
    listing = state.get("__dir__")
    if listing is not ABSENT:
        return trace.calls.call(listing, (), {})
    return list(state.names())
