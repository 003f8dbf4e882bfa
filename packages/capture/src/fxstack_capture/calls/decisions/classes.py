"""Calls of classes: the metaclass's ``__call__``, then ``__new__`` and ``__init__``."""

from __future__ import annotations

import types
import weakref
from typing import Any

import torch

from fxstack_capture.breaks import graph_break
from fxstack_capture.calls.deaths import demand_unobserved, finalizer_break
from fxstack_capture.calls.decisions import policy
from fxstack_capture.calls.native_run import run
from fxstack_capture.objects.instances import has_finalizer
from fxstack_capture.trace.records import Link
from fxstack_capture.trace.state import Args, Calls, Kwargs, Trace

# Limits: a class that a program creates and uses behind a graph break is compiled again in each call. Such a
# class lives until the compiled code is dropped.

_NEW_KINDS = (types.FunctionType, types.BuiltinFunctionType)
_object_new = object.__new__
_object_init = object.__init__


def construct(trace: Trace, cls: type, args: Args, kwargs: Kwargs, *, resumable: bool = False) -> Any:
    """Make an instance of ``cls``, as ``type.__call__`` does.

    If ``resumable``, the graph may break inside of an interpreted ``__init__`` (see ``dispatch``).
    """
    calls = trace.calls
    if has_finalizer(cls):
        raise finalizer_break(trace, cls)
    lookup = calls.objects.classes.lookup
    new, init = lookup(cls, "__new__"), lookup(cls, "__init__")
    if type(new) not in _NEW_KINDS:
        new = calls.objects.load_attr(cls, "__new__")
    if new is _object_new and init is not _object_init:
        obj = _object_new(cls)
    elif type(new) is types.BuiltinFunctionType:
        obj = _native_new(calls, cls, new, args, kwargs)
    else:
        obj = calls.call(new, (cls, *args), kwargs)
    kind = trace.torch.python_type(obj) if isinstance(obj, torch.Tensor) else type(obj)
    # No method of the metaclass is asked whether it is an instance.
    if not type.__subclasscheck__(cls, kind):
        return obj
    if kind is not cls:
        init = lookup(kind, "__init__")
    # ``object.__init__`` ignores arguments if the class overrides ``__new__``.
    if init is _object_init and (new is not _object_new or (not args and not kwargs)):
        return obj
    if resumable and new is _object_new and type(init) is types.FunctionType and calls.is_interpreted(init):
        # The result of the caller's instruction is the new object, not the return value of ``__init__``.
        result = trace.interp.call_linked(init, (obj, *args), kwargs, Link(obj))
    elif type(init) is types.FunctionType or type(init) is types.WrapperDescriptorType:
        result = calls.call(init, (obj, *args), kwargs)
    else:
        result = calls.call(calls.objects.bind(init, obj), args, kwargs)
    if result is not None:
        raise TypeError(f"__init__() should return None, not '{type(result).__name__}'")
    return obj


def _native_new(calls: Calls, cls: type, new: Any, args: Args, kwargs: Kwargs) -> Any:
    """Call ``new``, a ``__new__`` written in C.

    The call is recorded for a class that the tracer records, runs for real if the type is pure, and breaks
    the graph otherwise.
    """
    if calls.is_leaf(new):
        return calls.call(new, (cls, *args), kwargs)
    if not policy.is_pure_type(new.__self__):
        raise graph_break("unsupported-call", f"the class {cls.__module__}.{cls.__qualname__}")
    if new.__self__ is weakref.ref:
        demand_unobserved(calls.trace, args)
    return run(calls.trace, new, (cls, *args), kwargs)
