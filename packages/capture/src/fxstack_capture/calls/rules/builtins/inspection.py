"""Rules of introspection functions, and of calls that only configure or observe the process."""

from __future__ import annotations

import _abc  # type: ignore[import-not-found]
import _thread
import copyreg
import inspect
import sys
import types
from collections.abc import Callable
from typing import Any

from fxstack_capture import torch_compat
from fxstack_capture.breaks import graph_break
from fxstack_capture.callers import plainly
from fxstack_capture.calls.native_run import run
from fxstack_capture.calls.rules import RULES
from fxstack_capture.objects.protocols.abstract_classes import note_answers
from fxstack_capture.trace.constants import IDENTITY_TYPES, IMMUTABLE_TYPES, is_constant_key
from fxstack_capture.trace.lazy_dict import ABSENT
from fxstack_capture.trace.rule_registry import run_plainly
from fxstack_capture.trace.state import Args, Kwargs, Trace


@RULES.rule(inspect.signature)
def _signature(trace: Trace, _fn: object, args: Args, kwargs: Kwargs) -> Any:
    """Call the real ``inspect.signature`` for a function, or for a class with an ``__init__``. Break the
    graph for other objects and for mutable defaults.

    Guards check the code and the defaults of the function.
    """
    fn = args[0] if args else kwargs.get("callable", kwargs.get("obj"))
    inner = fn.__func__ if isinstance(fn, types.MethodType) else _init_of(trace, fn)
    if type(inner) is not types.FunctionType or len(args) > 1 or kwargs:
        raise graph_break("unsupported-call", "inspect.signature of an object that is not a function")
    while True:
        trace.objects.function_parts(inner)
        wrapped = inner.__dict__.get("__wrapped__")
        if type(wrapped) is not types.FunctionType:
            break
        inner = wrapped
    result = plainly(inspect.signature, args, {})
    for parameter in result.parameters.values():
        if not _is_inert(parameter.default):
            raise graph_break("unsupported-call", "inspect.signature of a function with a mutable default")
    return result


def _init_of(trace: Trace, fn: object) -> Any:
    """Return the ``__init__`` that determines the signature of a class. Any other object is returned
    unchanged.
    """
    if type(fn) is not type:
        return fn
    lookup = trace.objects.classes.lookup
    plain = lookup(fn, "__new__") is object.__new__ and lookup(fn, "__signature__") is ABSENT
    return lookup(fn, "__init__") if plain else fn


def _is_inert(value: object) -> bool:
    """Whether a default value is the same object in each call, so that a signature may contain it."""
    kind = type(value)
    return kind in IMMUTABLE_TYPES or kind in IDENTITY_TYPES or is_constant_key(value)


_SLOT_NAMES: Any = vars(copyreg)["_slotnames"]


@RULES.rule(_SLOT_NAMES)
def _slot_names(trace: Trace, _fn: object, args: Args, kwargs: Kwargs) -> Any:
    """Return the slot names of a class, for ``copy`` and ``pickle``.

    The cache that they keep in the class has no visible effect.
    """
    if len(args) != 1 or kwargs or trace.objects.is_new(args[0]):
        return trace.interp.call_function(_SLOT_NAMES, args, kwargs)
    return list(_SLOT_NAMES(args[0]))


@RULES.rule(_abc.get_cache_token)
def _registrations(trace: Trace, fn: Callable[..., Any], _args: Args, _kwargs: Kwargs) -> Any:
    """Return the number of registrations with abstract classes, and guard it.

    The cache of ``functools.singledispatch`` depends on this number.
    """
    trace.torch.guard_flag(fn)
    return fn()


@RULES.rule(_abc._abc_register, _abc._reset_registry, _abc._reset_caches)
def _register(trace: Trace, _fn: object, args: Args, kwargs: Kwargs) -> Any:
    """Break the graph at a registration with a class from outside. The registration is a side effect."""
    cls, *subclass = args
    if not subclass or not trace.objects.is_new(cls):
        raise graph_break("side-effect-call", f"a registration with {cls.__qualname__}")
    return run(trace, _abc._abc_register, args, kwargs)


@RULES.rule(_abc._abc_instancecheck)
def _is_instance(trace: Trace, fn: Callable[..., Any], args: Args, kwargs: Kwargs) -> Any:
    """Return whether an object is an instance of an abstract class, and guard the answer."""
    answer = run(trace, fn, args, kwargs)
    cls, value = args
    shown = trace.objects.load_attr(value, "__class__")  # the ``__class__`` of a proxy may be another class
    for kind in dict.fromkeys((type(value), shown)):
        note_answers(trace.objects, kind, cls)
    return answer


@RULES.rule(_abc._abc_subclasscheck)
def _is_subclass(trace: Trace, fn: Callable[..., Any], args: Args, kwargs: Kwargs) -> Any:
    """Return whether a class is a subclass of an abstract class, and guard the answer."""
    answer = run(trace, fn, args, kwargs)
    cls, kind = args
    note_answers(trace.objects, kind, cls)
    return answer


@RULES.rule(_thread.get_ident)
def _thread_id(trace: Trace, fn: Callable[..., Any], _args: Args, _kwargs: Kwargs) -> Any:
    """Return the id of the thread, and guard it. Each thread compiles its own entry."""
    trace.torch.guard_flag(fn)
    return fn()


RULES.add(run_plainly, sys.intern)


@RULES.rule(torch_compat.log_api_usage_once, torch_compat.log_api_usage_metadata)
def _no_telemetry(trace: Trace, _fn: object, args: Args, kwargs: Kwargs) -> None:
    """Ignore usage logging, because a program cannot observe the logging."""
