"""``CallDispatcher``: determine the kind of a callable and choose who runs the call."""

from __future__ import annotations

import functools
import types
import weakref
from collections.abc import Callable, Iterable
from contextlib import AbstractContextManager
from typing import Any

import torch

from fxstack_capture import native
from fxstack_capture.breaks import graph_break
from fxstack_capture.callers import calls_program
from fxstack_capture.calls import classes, policy, rehashing, scan
from fxstack_capture.calls import resumable as linked
from fxstack_capture.calls.c_functions import MOVES, traits_of
from fxstack_capture.calls.caches import call_cached
from fxstack_capture.calls.deaths import demand_unobserved, finalized
from fxstack_capture.calls.marks.marked import call_marked, is_marked
from fxstack_capture.calls.marks.optional import with_options
from fxstack_capture.calls.marks.registered import registered
from fxstack_capture.calls.marks.told_torch import rules_told_torch
from fxstack_capture.calls.native_run import run, run_intercepted
from fxstack_capture.calls.operators import numpy_scalars
from fxstack_capture.calls.operators import protocol as operators
from fxstack_capture.calls.polyfills.requests import REQUESTS, request
from fxstack_capture.calls.rules.joined import RULES
from fxstack_capture.calls.rules.library.operator_objects import OPERATOR_OBJECTS
from fxstack_capture.calls.rules.torch.compiling import scripted
from fxstack_capture.calls.rules.torch.wrappers import code_rule
from fxstack_capture.calls.table import Rule, RuleTable
from fxstack_capture.kernels.launching import launch_rules
from fxstack_capture.objects.instances import has_finalizer
from fxstack_capture.objects.kinds.functions import guard_part
from fxstack_capture.sources import BuiltinAttr, pinned
from fxstack_capture.torch_side.recording.function_mode import outside_c_code
from fxstack_capture.torch_side.subclasses.overrides import is_accessor
from fxstack_capture.trace.constants import BUILTIN_METHOD
from fxstack_capture.trace.lazy_dict import ABSENT
from fxstack_capture.trace.state import Objects, Trace

Caller = Callable[["CallDispatcher", Any, tuple[Any, ...], dict[str, Any]], Any]


class CallDispatcher:
    """The implementation of ``trace.state.Calls``.

    Siblings may add entries to ``rules`` before the trace starts.
    """

    def __init__(self, trace: Trace, rules: RuleTable = RULES) -> None:
        self.trace = trace
        known = {**rules.by_id(), **launch_rules(), **rules_told_torch(), **registered()}
        self.rules = with_options(known, trace.options)
        self.forwards = rules.forwards_by_id()
        self.codes = rules.codes_by_id()
        self.guarded: set[int] = set()
        self.leaves: dict[int, tuple[object, bool]] = {}
        self.scanned = dict(scan.CODES)
        """What ``scan`` knows of classes."""

    @property
    def objects(self) -> Objects:
        return self.trace.objects

    def rule_of(self, fn: Any) -> Rule | None:
        """The rule of a callable.

        The rule of a Python function holds only while the function has its original code. A guard checks the
        code.
        """
        rule = self.rules.get(id(fn))
        code = None if rule is None else self.codes.get(id(fn))
        if code is not None and id(fn) not in self.guarded:
            if fn.__code__ is not code:
                return None
            self.guarded.add(id(fn))
            guard_part(self.objects, fn, "__code__", pinned(fn, fn.__qualname__))
        return rule

    def call(self, fn: object, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        rule = self.rule_of(fn)
        if rule is not None:
            # Most rules accept only constants, so replace NumPy scalars that change between calls.
            if self.trace.torch.arrays.has_scalars:
                args, kwargs = numpy_scalars.given(self, fn, args, kwargs)
            return rule(self.trace, args, kwargs)
        caller = _CALLERS.get(type(fn))
        if caller is None:
            caller = _caller_of_kind(fn)
        return caller(self, fn, args, kwargs)

    def call_back(self, fn: object, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        try:
            with outside_c_code():
                return self.call(fn, args, kwargs)
        except Exception as error:
            self.trace.interp.demand_program(error)
            raise

    def call_linked(self, fn: object, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        return linked.call(self, fn, args, kwargs)

    def is_interpreted(self, fn: types.FunctionType) -> bool:
        return linked.is_interpreted(self, fn)

    def request(self, what: str, *operands: object) -> tuple[Any, tuple[Any, ...]] | None:
        return request(self, REQUESTS[what], operands)

    def native(self, fn: Callable[..., Any], args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        return run(self.trace, fn, args, kwargs)

    def watched(self, fn: Callable[..., Any], *args: object) -> Any:
        return run_intercepted(self.trace, fn, args, {})

    def without_effects(self, keys: Iterable[object]) -> AbstractContextManager[None]:
        return rehashing.without_effects(self.trace, keys)

    def special_method(self, obj: object, name: str) -> Any:
        return operators.special_method(self, obj, name)

    def binary(self, op: Callable[[Any, Any], Any], left: object, right: object) -> Any:
        return operators.binary(self, op, left, right)

    def unary(self, op: Callable[[Any], Any], value: object) -> Any:
        return operators.unary(self, op, value)

    def truth(self, value: object) -> bool:
        return operators.truth(self, value)

    def iterate(self, value: object) -> Any:
        return operators.iterate(self, value)

    def next(self, iterator: object) -> Any:
        return operators.advance(self, iterator)

    def is_leaf(self, fn: object) -> bool:
        """The result of ``trace.torch.is_leaf``, computed once for each callable."""
        found = self.leaves.get(id(fn))
        if found is None:
            # The table keeps ``fn`` alive, so its id stays valid.
            found = self.leaves[id(fn)] = (fn, self.trace.torch.is_leaf(fn))
        return found[1]


# --- Python callables ----------------------------------------------------------------------------


def _function(
    calls: CallDispatcher, fn: types.FunctionType, args: tuple[Any, ...], kwargs: dict[str, Any]
) -> Any:
    if calls.is_leaf(fn):
        return calls.trace.torch.call(fn, args, kwargs)
    wrapper = code_rule(fn)
    if wrapper is not None:
        return wrapper(calls.trace, fn, args, kwargs)
    if is_marked(fn):
        return call_marked(calls.trace, fn, args, kwargs)
    return calls.trace.interp.call_function(fn, args, kwargs)


def _method(
    calls: CallDispatcher, fn: types.MethodType, args: tuple[Any, ...], kwargs: dict[str, Any]
) -> Any:
    return calls.call(fn.__func__, (fn.__self__, *args), kwargs)


def _partial(
    calls: CallDispatcher, fn: functools.partial[Any], args: tuple[Any, ...], kwargs: dict[str, Any]
) -> Any:
    return calls.call(fn.func, (*fn.args, *args), {**fn.keywords, **kwargs})


# --- compiled callables --------------------------------------------------------------------------


def _builtin(calls: CallDispatcher, fn: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    owner = fn.__self__
    if owner is None or isinstance(owner, types.ModuleType):
        if policy.is_pure_function(fn):
            return run(calls.trace, fn, args, kwargs)
        return _other(calls, fn, args, kwargs)
    if isinstance(owner, type):
        return _type_builtin(calls, owner, fn, args, kwargs)
    descriptor = _descriptor(type(owner), fn.__name__)
    if descriptor is None:
        return _other(calls, fn, args, kwargs)
    return calls.call(descriptor, (owner, *args), kwargs)


def _descriptor(cls: type, name: str) -> Any:
    """The C descriptor of a bound builtin method."""
    # This read of ``__mro__`` bypasses ``__getattribute__`` of a metaclass.
    for base in type.__dict__["__mro__"].__get__(cls):
        found = base.__dict__.get(name)
        if isinstance(found, (types.MethodDescriptorType, types.WrapperDescriptorType)):
            return found
    return None


def _type_builtin(
    calls: CallDispatcher, owner: type, fn: Callable[..., Any], args: tuple[Any, ...], kwargs: dict[str, Any]
) -> Any:
    """Call ``__new__`` or a class method of a C type."""
    if fn.__name__ == "__new__":
        if args and isinstance(args[0], type) and has_finalizer(args[0]):
            raise finalized(calls.trace, args[0])
        if owner is weakref.ref:
            demand_unobserved(calls.trace, args[1:])
        if policy.is_pure_type(owner):
            return run(calls.trace, fn, args, kwargs)
        return _other(calls, fn, args, kwargs)
    of_meta = _descriptor(type(owner), fn.__name__)
    if of_meta is not None:
        return calls.call(of_meta, (owner, *args), kwargs)
    for base in type.__dict__["__mro__"].__get__(owner):
        descriptor = base.__dict__.get(fn.__name__)
        if isinstance(descriptor, (types.ClassMethodDescriptorType, staticmethod)):
            if calls.is_leaf(descriptor):
                return calls.trace.torch.call(descriptor, (owner, *args), kwargs)
            if policy.is_pure_type(base) and descriptor not in policy._IMPURE_METHODS:
                return run(calls.trace, fn, args, kwargs)
            break
    return _other(calls, fn, args, kwargs)


def _descriptor_call(calls: CallDispatcher, fn: Any, args: Any, kwargs: object) -> Any:
    older = args and isinstance(args[0], BaseException) and calls.objects.is_preexisting(args[0])
    if older and fn.__name__ == "__init__":
        raise graph_break("unsupported-object", f"{fn.__qualname__} of an exception from outside")
    if policy.is_pure_method(fn):
        return methods_run(calls, fn, args, kwargs)
    return _other(calls, fn, args, kwargs)


@calls_program
def methods_run(calls: CallDispatcher, fn: Any, args: Any, kwargs: Any) -> Any:
    """Call a method of a pure C type.

    Methods that only move their arguments skip the scan of the arguments.
    """
    if traits_of(fn) & MOVES:
        if calls.objects.lazy and id(args[0]) in calls.objects.lazy:
            calls.objects.expand(args[0])
        return fn(*args, **kwargs)
    return run(calls.trace, fn, args, kwargs)


def _bound_slot(calls: CallDispatcher, fn: Any, args: Any, kwargs: Any) -> Any:
    if isinstance(fn.__self__, torch.Tensor):
        return calls.trace.torch.call(fn, args, kwargs)
    if is_accessor(fn):
        return calls.trace.torch.accessed(fn, args)
    descriptor = fn.__objclass__.__dict__[fn.__name__]
    return calls.call(descriptor, (fn.__self__, *args), kwargs)


def _other(calls: CallDispatcher, fn: Any, args: Any, kwargs: Any) -> Any:
    if calls.is_leaf(fn):
        return calls.trace.torch.call(fn, args, kwargs)
    name = getattr(fn, "__qualname__", None) or repr(fn)
    module = getattr(fn, "__module__", None)
    label = f"{module}.{name}" if module and module != "builtins" else name
    raise graph_break("side-effect-call" if policy.has_side_effect(fn) else "unsupported-call", label)


@calls_program
def _instance(
    calls: CallDispatcher, fn: Callable[..., Any], args: tuple[Any, ...], kwargs: dict[str, Any]
) -> Any:
    """Call an object whose class defines ``__call__``."""
    if calls.is_leaf(fn):
        return calls.trace.torch.call(fn, args, kwargs)
    cls = calls.trace.torch.python_type(fn) if isinstance(fn, torch.Tensor) else type(fn)
    method = calls.objects.classes.lookup(cls, "__call__")
    if method is ABSENT:
        raise TypeError(f"'{cls.__name__}' object is not callable")
    if type(method) is types.FunctionType:
        return calls.call(method, (fn, *args), kwargs)
    if policy.is_pure_type(type(fn)) or method is _REFERENT:
        return run(calls.trace, fn, args, kwargs)
    if isinstance(method, types.WrapperDescriptorType):
        return _other(calls, fn, args, kwargs)
    bound = calls.objects.bind(method, fn)
    return calls.call(bound, args, kwargs)


_REFERENT = weakref.ref.__dict__["__call__"]


def _optimized(calls: CallDispatcher, fn: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    """Call a function that was compiled separately: inline the original function into this graph."""
    inner = fn.__wrapped__
    source = pinned(fn, getattr(inner, "__qualname__", "compiled"))
    return calls.call(calls.objects.enter(inner, BuiltinAttr(source, "__wrapped__")), args, kwargs)


_CALLERS: dict[type, Caller] = {
    torch.jit.ScriptFunction: scripted,
    native.Optimized: _optimized,
    **OPERATOR_OBJECTS,
    types.FunctionType: _function,
    types.MethodType: _method,
    functools.partial: _partial,
    types.BuiltinFunctionType: _builtin,
    BUILTIN_METHOD: _builtin,
    types.MethodDescriptorType: _descriptor_call,
    types.WrapperDescriptorType: _descriptor_call,
    types.ClassMethodDescriptorType: _descriptor_call,
    types.MethodWrapperType: _bound_slot,
    type(functools.lru_cache(lambda: None)): call_cached,
    type: classes.call_class,
}


def _caller_of_kind(fn: object) -> Caller:
    if isinstance(fn, type):
        return classes.call_class
    return _instance
