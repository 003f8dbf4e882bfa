"""Resumable calls: the result of the call is the result of the caller's bytecode instruction.

The graph can therefore break inside of the callee. This module unwraps callables that pass on the result of a
Python function without change: methods, partial objects, instances with ``__call__``, classes with
``__init__``. Every other call is an ordinary call.
"""

from __future__ import annotations

import functools
import types
from collections.abc import Callable
from typing import Any

from fxstack_capture.calls.decisions import policy
from fxstack_capture.calls.polyfills.requests import of_call
from fxstack_capture.calls.table import Request
from fxstack_capture.objects.instances import has_finalizer
from fxstack_capture.trace.records import RETURNED, Link
from fxstack_capture.trace.state import Calls

_QUANTIFIERS = frozenset({id(all), id(any)})

Unwrap = Callable[[Calls, Any, tuple[Any, ...], dict[str, Any]], Request | None]


def call(calls: Calls, fn: object, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    while type(fn) is not types.FunctionType:
        if calls.trace.plan.polyfills or id(fn) in _QUANTIFIERS:
            # This trace found a graph break below C code. A polyfill replaces the C code if the C code calls
            # back. ``all`` and ``any`` may be part of a check (``interpreter.checks``), which follows bytecode.
            unfolded = of_call(calls, fn, args, kwargs)
            if unfolded is not None:
                fn, args, kwargs = *unfolded, {}
                continue
        if calls.rule_of(fn) is not None:
            return calls.call(fn, args, kwargs)
        if isinstance(fn, type):
            return _construct(calls, fn, args, kwargs)
        request = _UNWRAP.get(type(fn), _instance)(calls, fn, args, kwargs)
        if request is None:
            return calls.call(fn, args, kwargs)
        fn, args, kwargs = request
    return _function(calls, fn, args, kwargs)


def is_interpreted(calls: Calls, fn: types.FunctionType) -> bool:
    """Whether a call of ``fn`` interprets its code."""
    return calls.rule_of(fn) is None and calls.decide(fn)[0].interprets


def _function(calls: Calls, fn: types.FunctionType, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    if calls.rule_of(fn) is not None:
        forward = calls.forwards.get(id(fn))
        if forward is not None:
            return call(calls, *forward(calls.trace, args, kwargs))
        return calls.call(fn, args, kwargs)
    case, run_call = calls.decide(fn)
    if case.interprets:
        return calls.trace.interp.call_linked(fn, args, kwargs, RETURNED)
    return run_call(calls, fn, args, kwargs)


# --- callables that wrap a function --------------------------------------------------------------


def _method(_: Calls, fn: types.MethodType, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Request:
    return fn.__func__, (fn.__self__, *args), kwargs


def _partial(_: Calls, fn: functools.partial[Any], args: tuple[Any, ...], kwargs: dict[str, Any]) -> Request:
    return fn.func, (*fn.args, *args), {**fn.keywords, **kwargs}


def _nothing(_: Calls, fn: object, args: object, kwargs: object) -> None:
    """C code has no Python function to unwrap."""


def _instance(
    calls: Calls, fn: Callable[..., Any], args: tuple[Any, ...], kwargs: dict[str, Any]
) -> Request | None:
    """Unwrap an object whose class defines ``__call__`` in Python."""
    if not calls.is_leaf(fn):
        method = calls.objects.classes.lookup(type(fn), "__call__")
        if type(method) is types.FunctionType:
            return method, (fn, *args), kwargs
    return None


_UNWRAP: dict[type, Unwrap] = {
    types.MethodType: _method,
    functools.partial: _partial,
    **dict.fromkeys(
        (
            types.BuiltinFunctionType,
            types.MethodDescriptorType,
            types.WrapperDescriptorType,
            types.ClassMethodDescriptorType,
            types.MethodWrapperType,
            type(functools.lru_cache(lambda: None)),
        ),
        _nothing,
    ),
}

_object_new = object.__new__


def _construct(calls: Calls, cls: type, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    """Call a class without its own ``__new__`` and with a Python ``__init__``.

    The result of the instruction is the new object, not the result of ``__init__``.
    """
    custom = calls.objects.classes.lookup(type(cls), "__call__")
    if type(custom) is types.FunctionType:
        return call(calls, custom, (cls, *args), kwargs)
    if not policy.is_pure_type(cls) and not calls.is_leaf(cls):
        lookup = calls.objects.classes.lookup
        init = lookup(cls, "__init__")
        if (
            not has_finalizer(cls)
            and lookup(cls, "__new__") is _object_new
            and type(init) is types.FunctionType
            and is_interpreted(calls, init)
        ):
            made = _object_new(cls)
            result = calls.trace.interp.call_linked(init, (made, *args), kwargs, Link(made))
            if result is not None:
                name = type(result).__name__
                raise TypeError(f"__init__() should return None, not '{name}'")
            return made
    return calls.call(cls, args, kwargs)
