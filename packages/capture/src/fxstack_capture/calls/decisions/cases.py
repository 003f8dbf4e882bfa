"""The cases of a call, in the order in which they are asked: the first that holds says what the call does.

A rule of the callable comes before all cases (``dispatch.SOURCES``). The last case of each kind always holds.
"""

from __future__ import annotations

import functools
import types
import weakref
from collections.abc import Callable, Mapping
from functools import partial
from typing import Any, Final

import torch

from fxstack_capture import native
from fxstack_capture.breaks import graph_break
from fxstack_capture.callers import calls_program
from fxstack_capture.calls.c_functions import MOVES, traits_of
from fxstack_capture.calls.caches import call_cached
from fxstack_capture.calls.deaths import demand_unobserved, finalized
from fxstack_capture.calls.decisions import classes, policy
from fxstack_capture.calls.decisions.case import Case, Runner, always
from fxstack_capture.calls.marks.marked import call_marked, is_marked
from fxstack_capture.calls.native_run import run, specialized
from fxstack_capture.calls.rules.library.operator_objects import OPERATOR_OBJECTS
from fxstack_capture.calls.rules.torch.compiling import scripted
from fxstack_capture.calls.rules.torch.wrappers import CodeRule, code_rule
from fxstack_capture.objects.instances import has_finalizer
from fxstack_capture.sources import BuiltinAttr, pinned
from fxstack_capture.torch_side.subclasses.overrides import is_accessor
from fxstack_capture.trace.constants import BUILTIN_METHOD
from fxstack_capture.trace.lazy_dict import ABSENT
from fxstack_capture.trace.state import Calls

# --- functions --------------------------------------------------------------------------------------


def _interpret(calls: Calls, fn: types.FunctionType, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    return calls.trace.interp.call_function(fn, args, kwargs)


def _record(calls: Calls, fn: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    return calls.trace.torch.call(fn, args, kwargs)


def _refuse(calls: Calls, fn: Any, _args: tuple[Any, ...], _kwargs: dict[str, Any]) -> Any:
    name = getattr(fn, "__qualname__", None) or repr(fn)
    module = getattr(fn, "__module__", None)
    label = f"{module}.{name}" if module and module != "builtins" else name
    raise graph_break("side-effect-call" if policy.has_side_effect(fn) else "unsupported-call", label)


def _wrapper(_calls: Calls, fn: types.FunctionType) -> Runner | None:
    rule = code_rule(fn)
    return None if rule is None else partial(_by_code, rule)


def _by_code(rule: CodeRule, calls: Calls, fn: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    return rule(calls.trace, fn, args, kwargs)


def _marked(_calls: Calls, fn: types.FunctionType) -> Runner | None:
    return _call_marked if is_marked(fn) else None


def _call_marked(calls: Calls, fn: types.FunctionType, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    return call_marked(calls.trace, fn, args, kwargs)


OPERATOR: Final = Case(
    "operator",
    "records one node of the graph, or what the rule of torch_side/rules records",
    lambda calls, fn: _record if calls.is_leaf(fn) else None,
)
INTERPRETED: Final = Case(
    "Python code", "interprets the bytecode of the function", lambda _calls, _fn: _interpret, interprets=True
)
REFUSED: Final = Case("refused", "breaks the graph", lambda _calls, _fn: _refuse)

_FUNCTION: Final = (
    OPERATOR,
    Case("wrapper", "calls the function that a known wrapper wraps", _wrapper),
    Case("marked", "does what a mark of torch.compiler or of this package says", _marked),
    INTERPRETED,
)


# --- methods of objects -----------------------------------------------------------------------------


def _method(calls: Calls, fn: types.MethodType, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    return calls.call(fn.__func__, (fn.__self__, *args), kwargs)


def _partial(calls: Calls, fn: functools.partial[Any], args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    return calls.call(fn.func, (*fn.args, *args), {**fn.keywords, **kwargs})


_METHOD: Final = (always("method", "calls the function with the object", _method, lambda fn: fn.__func__),)
_PARTIAL: Final = (
    always("partial object", "calls the function with the kept arguments", _partial, lambda fn: fn.func),
)


# --- C code -----------------------------------------------------------------------------------------


def _run(calls: Calls, fn: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    return run(calls.trace, fn, args, kwargs)


def _pure_function(_calls: Calls, fn: Any) -> Runner | None:
    is_free = fn.__self__ is None or isinstance(fn.__self__, types.ModuleType)
    return _run if is_free and policy.is_pure_function(fn) else None


def _owner(fn: Any) -> Any:
    """Return the object whose bound C method ``fn`` is; None for a free function."""
    return None if isinstance(fn.__self__, types.ModuleType) else fn.__self__


def _method_behind(fn: Any) -> Any:
    """Return the C descriptor of a bound C method, or None; a constructor of a class has none."""
    owner = _owner(fn)
    if owner is None or (isinstance(owner, type) and fn.__name__ == "__new__"):
        return None
    return _descriptor(type(owner), fn.__name__)


def _descriptor(cls: type, name: str) -> Any:
    # This read of ``__mro__`` bypasses ``__getattribute__`` of a metaclass.
    for base in type.__dict__["__mro__"].__get__(cls):
        found = base.__dict__.get(name)
        if isinstance(found, (types.MethodDescriptorType, types.WrapperDescriptorType)):
            return found
    return None


def _bound_method(_calls: Calls, fn: Any) -> Runner | None:
    method = _method_behind(fn)
    return None if method is None else partial(_call_behind, method)


def _call_behind(method: Any, calls: Calls, fn: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    return calls.call(method, (fn.__self__, *args), kwargs)


def _constructor(_calls: Calls, fn: Any) -> Runner | None:
    return _new if fn.__name__ == "__new__" and isinstance(_owner(fn), type) else None


def _new(calls: Calls, fn: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    if args and isinstance(args[0], type) and has_finalizer(args[0]):
        raise finalized(calls.trace, args[0])
    if fn.__self__ is weakref.ref:
        demand_unobserved(calls.trace, args[1:])
    if policy.is_pure_type(fn.__self__):
        return run(calls.trace, fn, args, kwargs)
    return _record(calls, fn, args, kwargs) if calls.is_leaf(fn) else _refuse(calls, fn, args, kwargs)


def _class_method(calls: Calls, fn: Any) -> Runner | None:
    """Find class methods and static methods of C types."""
    owner = _owner(fn)
    if not isinstance(owner, type):
        return None
    for base in type.__dict__["__mro__"].__get__(owner):
        descriptor = base.__dict__.get(fn.__name__)
        if isinstance(descriptor, (types.ClassMethodDescriptorType, staticmethod)):
            if calls.is_leaf(descriptor):
                return partial(_on_class, descriptor)
            if not policy.is_pure_type(base) or descriptor in policy.IMPURE_METHODS:
                return None
            is_bound = not isinstance(descriptor, staticmethod) and not policy.is_pure_type(owner)
            return partial(_run_on_class, descriptor) if is_bound else _run
    return None


def _run_on_class(method: Any, calls: Calls, fn: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    # It may call the program's ``__new__``. A run that fails for a symbol is repeated, with its effects.
    return run(calls.trace, method, (fn.__self__, *specialized(calls.trace, args)), kwargs)


def _on_class(descriptor: Any, calls: Calls, fn: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    return _record(calls, descriptor, (fn.__self__, *args), kwargs)


def _pure_method(_calls: Calls, fn: Any) -> Runner | None:
    return methods_run if policy.is_pure_method(fn) else None


@calls_program
def methods_run(calls: Calls, fn: Any, args: Any, kwargs: Any) -> Any:
    """Call a method of a pure C type.

    Methods that only move their arguments skip the scan of the arguments.
    """
    if (
        fn.__name__ == "__init__"
        and isinstance(args[0] if args else None, BaseException)
        and calls.objects.is_preexisting(args[0])
    ):
        raise graph_break("unsupported-object", f"{fn.__qualname__} of an exception from outside")
    if traits_of(fn) & MOVES:
        if calls.objects.lazy and id(args[0]) in calls.objects.lazy:
            calls.objects.expand(args[0])
        return fn(*args, **kwargs)
    return run(calls.trace, fn, args, kwargs)


def _slot(calls: Calls, fn: Any, args: Any, kwargs: Any) -> Any:
    if isinstance(fn.__self__, torch.Tensor):
        return calls.trace.torch.call(fn, args, kwargs)
    if is_accessor(fn):
        return calls.trace.torch.accessed(fn, args)
    return calls.call(_slot_behind(fn), (fn.__self__, *args), kwargs)


def _slot_behind(fn: Any) -> Any:
    return fn.__objclass__.__dict__[fn.__name__]


_NATIVELY: Final = "runs for real: it reads and changes nothing but its arguments"
_BUILTIN: Final = (
    Case("bound C method", "calls the method of the type with the object", _bound_method, _method_behind),
    Case("pure C function", _NATIVELY, _pure_function),
    Case(
        "constructor in C",
        "makes the object for real if the type is pure, else breaks the graph",
        _constructor,
    ),
    Case("class method in C", _NATIVELY, _class_method),
    OPERATOR,
    REFUSED,
)
_DESCRIPTOR: Final = (Case("method of a pure type", _NATIVELY, _pure_method), OPERATOR, REFUSED)
_SLOT: Final = (always("bound slot", "calls the slot of the type with the object", _slot, _slot_behind),)


# --- classes and objects ----------------------------------------------------------------------------


def _metaclass_call(calls: Calls, cls: type) -> Any:
    """Return ``__call__`` of the metaclass if it is not C code, else None."""
    meta = type(cls)
    custom = None if meta is type else calls.objects.classes.lookup(meta, "__call__")
    # A class is no descriptor: a ``TypedDict`` calls ``dict``.
    return custom if type(custom) is types.FunctionType or isinstance(custom, type) else None


def _by_metaclass(calls: Calls, cls: type) -> Runner | None:
    custom = _metaclass_call(calls, cls)
    return None if custom is None else partial(_call_metaclass, custom)


def _call_metaclass(
    custom: Any, calls: Calls, cls: type, args: tuple[Any, ...], kwargs: dict[str, Any]
) -> Any:
    return calls.call(custom, args if isinstance(custom, type) else (cls, *args), kwargs)


_CLASS: Final = (
    Case("metaclass", "calls __call__ of the metaclass", _by_metaclass),
    Case("pure class", _NATIVELY, lambda _calls, cls: _run if policy.is_pure_type(cls) else None),
    OPERATOR,
    always("class", "calls __new__ and __init__ as type.__call__ does", classes.construct),
)


@calls_program
def _call_object(calls: Calls, fn: Callable[..., Any], args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    """Call an object whose class defines ``__call__``."""
    cls = calls.trace.torch.python_type(fn) if isinstance(fn, torch.Tensor) else type(fn)
    method = calls.objects.classes.lookup(cls, "__call__")
    if method is ABSENT:
        raise TypeError(f"'{cls.__name__}' object is not callable")
    if type(method) is types.FunctionType:
        return calls.call(method, (fn, *args), kwargs)
    if policy.is_pure_type(type(fn)) or method is _REFERENT:
        return run(calls.trace, fn, args, kwargs)
    if isinstance(method, types.WrapperDescriptorType):
        return _refuse(calls, fn, args, kwargs)
    return calls.call(calls.objects.bind(method, fn), args, kwargs)


_REFERENT = weakref.ref.__dict__["__call__"]


def _optimized(calls: Calls, fn: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    """Call a function that was compiled separately: inline the original function into this graph."""
    inner = fn.__wrapped__
    source = pinned(fn, getattr(inner, "__qualname__", "compiled"))
    return calls.call(calls.objects.enter(inner, BuiltinAttr(source, "__wrapped__")), args, kwargs)


_OBJECT: Final = (OPERATOR, always("object", "calls __call__ of the class", _call_object))

CASES: Final[Mapping[type, tuple[Case, ...]]] = {
    types.FunctionType: _FUNCTION,
    types.MethodType: _METHOD,
    functools.partial: _PARTIAL,
    types.BuiltinFunctionType: _BUILTIN,
    BUILTIN_METHOD: _BUILTIN,
    types.MethodDescriptorType: _DESCRIPTOR,
    types.WrapperDescriptorType: _DESCRIPTOR,
    types.ClassMethodDescriptorType: _DESCRIPTOR,
    types.MethodWrapperType: _SLOT,
    type(functools.lru_cache(lambda: None)): (
        always(
            "cached function",
            "reads the cache, or traces the function",
            call_cached,
            lambda fn: fn.__wrapped__,
        ),
    ),
    type: _CLASS,
    torch.jit.ScriptFunction: (always("TorchScript", "calls the function that was scripted", scripted),),
    native.Optimized: (
        always("compiled function", "inlines the original function", _optimized, lambda fn: fn.__wrapped__),
    ),
    **{
        cls: (always(f"operator.{cls.__name__}", "reads attributes and items of proxies", runner),)
        for cls, runner in OPERATOR_OBJECTS.items()
    },
}
"""The cases of each kind of callable, in the order in which they are asked."""


def cases_of(fn: object) -> tuple[Case, ...]:
    """Return the cases that decide a call of ``fn`` if no rule exists. The last case always holds."""
    return CASES.get(type(fn)) or (_CLASS if isinstance(fn, type) else _OBJECT)
