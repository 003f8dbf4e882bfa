"""The attribute slots of ``object`` and ``type``: the generic protocol on proxies."""

from __future__ import annotations

import types
from collections.abc import Callable
from typing import Any

from fxstack_capture.breaks import graph_break
from fxstack_capture.callers import plainly
from fxstack_capture.calls.decisions.classes import construct
from fxstack_capture.calls.native_run import run
from fxstack_capture.calls.rules import RULES
from fxstack_capture.guards.records import IdentityIs, LengthIs
from fxstack_capture.objects.protocols import loaders, stores
from fxstack_capture.objects.protocols import loads as attributes
from fxstack_capture.sources import Converted, Item, pinned
from fxstack_capture.trace.lazy_dict import ABSENT
from fxstack_capture.trace.rule_registry import run_plainly
from fxstack_capture.trace.state import Args, Kwargs, Trace

_SUBCLASSES: Any = type.__dict__["__subclasses__"]


@RULES.rule(object.__getattribute__)
def _getattribute(trace: Trace, fn: Callable[..., Any], args: Args, kwargs: Kwargs) -> Any:
    """Read an attribute of a proxy by the generic protocol."""
    if len(args) != 2 or kwargs or type(args[1]) is not str:
        return run(trace, fn, args, kwargs)
    if isinstance(args[0], type):
        return loaders.load_from_class_alone(trace.objects, *args)
    if isinstance(args[0], types.ModuleType):
        return loaders.load_from_module_alone(trace.objects, *args)
    return attributes.generic_load(trace.objects, *args)


@RULES.unpacked(object.__setattr__, count=(3, 3))
def _setattr(trace: Trace, obj: object, name: object, value: object) -> Any:
    """Set an attribute of a proxy by the generic protocol."""
    if type(name) is not str or isinstance(obj, type):
        return plainly(object.__setattr__, (obj, name, value), {})
    return stores.generic_store(trace.objects, obj, name, value)


@RULES.unpacked(object.__delattr__, count=(2, 2))
def _delattr(trace: Trace, obj: object, name: object) -> Any:
    """Delete an attribute of a proxy by the generic protocol."""
    if type(name) is not str or isinstance(obj, type):
        return plainly(object.__delattr__, (obj, name), {})
    return stores.generic_store(trace.objects, obj, name, ABSENT)


@RULES.unpacked(type.__getattribute__, count=(2, 2))
def _type_getattribute(trace: Trace, cls: Any, name: object) -> Any:
    """Read an attribute of a class by the generic protocol."""
    if type(name) is not str:
        return plainly(type.__getattribute__, (cls, name), {})
    return loaders.generic_load_class(trace.objects, cls, name)


@RULES.unpacked(type.__setattr__, count=(3, 3))
def _type_setattr(trace: Trace, cls: Any, name: object, value: object) -> Any:
    """Set an attribute of a class by the generic protocol."""
    if type(name) is not str:
        return plainly(type.__setattr__, (cls, name, value), {})
    return stores.generic_store(trace.objects, cls, name, value)


@RULES.rule(type.__call__)
def _type_call(trace: Trace, _fn: object, args: Args, kwargs: Kwargs) -> Any:
    """Make an instance: call ``__new__`` and ``__init__``."""
    return construct(trace, args[0], args[1:], kwargs)


@RULES.rule(_SUBCLASSES)
def _subclasses(trace: Trace, _fn: object, args: Args, kwargs: Kwargs) -> Any:
    """Return the current subclasses in a new list. Guards check their number and identity. Break the graph if
    a class of the trace is among them.
    """
    objects = trace.objects
    subclasses = plainly(type.__subclasses__, args, kwargs)
    if objects.is_new(args[0]) or any(map(objects.is_new, subclasses)):
        raise graph_break("unsupported-call", "type.__subclasses__")
    source = Converted(pinned(args[0], args[0].__qualname__), _SUBCLASSES)
    trace.guard(source, LengthIs(len(subclasses)))
    for index, subclass in enumerate(subclasses):
        trace.guard(Item(source, index), IdentityIs(subclass, id(subclass)))
    return [objects.enter(subclass, Item(source, index)) for index, subclass in enumerate(subclasses)]


@RULES.rule(object.__reduce_ex__, object.__reduce__, object.__getstate__)
def _state(trace: Trace, fn: Callable[..., Any], args: Args, kwargs: Kwargs) -> Any:
    """Return the state of an object for ``copy`` and ``pickle``. Its attributes are filled before."""
    if args:
        trace.objects.expand(args[0])
    return run(trace, fn, args, kwargs)


RULES.add(run_plainly, object.__init__)
