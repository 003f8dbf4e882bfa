"""The order of precedence of rules and cases. The first that applies to a callable decides what a call does.

``PRECEDENCE`` is the whole order. Its first rows are the rules by identity (``SOURCES``). The dispatcher
joins them into one dictionary for each trace. A row with ``forwards`` returns another call, which is made in
place of this call.
"""

from __future__ import annotations

import functools
import importlib
import pkgutil
import types
import weakref
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import partial
from typing import Any, Final

import torch

from fxstack_capture.breaks import graph_break
from fxstack_capture.callers import calls_program
from fxstack_capture.calls.c_functions import MOVES, traits_of
from fxstack_capture.calls.deaths import demand_unobserved, finalizer_break
from fxstack_capture.calls.decisions import classes, policy
from fxstack_capture.calls.marks.marked import rule_of_mark
from fxstack_capture.calls.marks.program_rules import registered_rules, rules_by_torch
from fxstack_capture.calls.native_run import run, specialized
from fxstack_capture.calls.rules import RULES, builtins, library
from fxstack_capture.calls.rules import torch as torch_rules
from fxstack_capture.calls.rules.builtins.running_frames import call_debugger, is_debugger
from fxstack_capture.calls.rules.torch.wrappers import call_original, is_only_torchs_compilers
from fxstack_capture.kernels.launching import launch_rules
from fxstack_capture.objects.instances import has_finalizer
from fxstack_capture.torch_side.recording.tracer import TorchTracer
from fxstack_capture.torch_side.rules import table
from fxstack_capture.torch_side.subclasses.overrides import is_accessor
from fxstack_capture.trace.constants import BUILTIN_METHOD
from fxstack_capture.trace.lazy_dict import ABSENT
from fxstack_capture.trace.rule_registry import Request, Rule
from fxstack_capture.trace.state import Args, Calls, Kwargs, Trace

for _folder in (builtins, library, torch_rules):
    for _module in pkgutil.iter_modules(_folder.__path__, f"{_folder.__name__}."):
        importlib.import_module(_module.name)


@dataclass(frozen=True, slots=True)
class Case:
    """One row of the order of precedence."""

    name: str
    """The name of the row in the answers of the command ``rule``."""
    kinds: tuple[type, ...]
    """The classes of the callables that the case is about. ``type`` stands for all classes, ``object`` for
    instances.
    """
    find: Callable[[Any, Any], Rule | None]
    """``find(calls, fn)`` returns the rule, or None if the case does not apply to ``fn``.

    ``find`` uses only ``calls.is_leaf`` and attributes of classes. Therefore ``explaining`` can call it
    without a trace.
    """
    does: str = ""
    """What a call does, as text for people. If it is empty, the rule's docstring is shown."""
    run: Rule | None = None
    """The function that runs a call. None if this is the rule that ``find`` returns."""
    forwards: bool = False
    """Whether the rule returns another call to make (a ``Request``) instead of a result."""
    instead: Callable[[Any], object] = lambda _fn: None
    """Returns the callable that is called in place of ``fn``, if ``fn`` alone determines it."""


# --- all kinds ---------------------------------------------------------------------------------------


def _record(trace: Trace, fn: Callable[..., Any], args: Args, kwargs: Kwargs) -> Any:
    """Record the call as a node of the graph. If the tracer has a rule for the function, call the rule."""
    return trace.torch.call(fn, args, kwargs)


def _refuse(_trace: Trace, fn: Callable[..., Any], _args: Args, _kwargs: Kwargs) -> Any:
    """Break the graph at a call of C code that may have effects outside of its arguments."""
    name = getattr(fn, "__qualname__", None) or repr(fn)
    module = getattr(fn, "__module__", None)
    label = f"{module}.{name}" if module and module != "builtins" else name
    raise graph_break("side-effect-call" if policy.has_side_effect(fn) else "unsupported-call", label)


def _interpret(trace: Trace, fn: types.FunctionType, args: Args, kwargs: Kwargs) -> Any:
    """Interpret the bytecode of the function."""
    return trace.interp.call_function(fn, args, kwargs)


def _tracer_rule(calls: Calls, fn: Any) -> Rule | None:
    """Return the tracer's own rule of a function. None if the tracer does not handle calls of the function."""
    rule = table.rule_of(fn)
    return rule if rule is not None and calls.is_leaf(fn) else None


def _inner(fn: Any) -> object:
    """Return the callable inside of a bound method, a partial object or a cached function."""
    names = ("__func__", "func", "__wrapped__")
    return next((getattr(fn, name) for name in names if hasattr(fn, name)), None)


def _forward_bound(_trace: Trace, fn: types.MethodType, args: Args, kwargs: Kwargs) -> Request:
    """Forward the call of a bound method to its function."""
    return fn.__func__, (fn.__self__, *args), kwargs


def _forward_partial(_trace: Trace, fn: functools.partial[Any], args: Args, kwargs: Kwargs) -> Request:
    """Forward the call of a partial object to its function."""
    return fn.func, (*fn.args, *args), {**fn.keywords, **kwargs}


# --- C code -----------------------------------------------------------------------------------------


def _pure_function(_calls: Calls, fn: Any) -> Rule | None:
    """Return the rule that runs a pure C function. The function is not a method. None for any other C
    function.
    """
    is_free = fn.__self__ is None or isinstance(fn.__self__, types.ModuleType)
    return run if is_free and policy.is_pure_function(fn) else None


def _owner(fn: Any) -> Any:
    """Return the object to which the C method ``fn`` is bound. None if ``fn`` is a free function."""
    return None if isinstance(fn.__self__, types.ModuleType) else fn.__self__


def _method_behind(fn: Any) -> Any:
    """Return the C descriptor of a bound C method. None if there is none, as for the constructor of a class."""
    owner = _owner(fn)
    if owner is None or (isinstance(owner, type) and fn.__name__ == "__new__"):
        return None
    return _descriptor(type(owner), fn.__name__)


def _descriptor(cls: type, name: str) -> Any:
    """Return the C method ``name`` that ``cls`` has or inherits, for example ``str.join``, or None."""
    # This read of ``__mro__`` does not call the ``__getattribute__`` of a metaclass.
    for base in type.__dict__["__mro__"].__get__(cls):
        found = base.__dict__.get(name)
        if isinstance(found, (types.MethodDescriptorType, types.WrapperDescriptorType)):
            return found
    return None


def _bound_method(_calls: Calls, fn: Any) -> Rule | None:
    """Return the rule for a bound C method, such as ``[].append``. It calls the method of the class. None for
    any other function.
    """
    method = _method_behind(fn)
    return None if method is None else partial(_forward_method, method)


def _forward_method(method: Any, _trace: Trace, fn: Any, args: Args, kwargs: Kwargs) -> Request:
    """Forward the call of a bound C method to ``method``, the method of the class."""
    return method, (fn.__self__, *args), kwargs


def _constructor(_calls: Calls, fn: Any) -> Rule | None:
    """Return the rule for the ``__new__`` of a C class. None for any other function."""
    return _new if fn.__name__ == "__new__" and isinstance(_owner(fn), type) else None


def _new(trace: Trace, fn: Any, args: Args, kwargs: Kwargs) -> Any:
    """Call the ``__new__`` of a C class as a bound function of the class. Break the graph if the class has a
    finalizer.
    """
    if args and isinstance(args[0], type) and has_finalizer(args[0]):
        raise finalizer_break(trace, args[0])
    if fn.__self__ is weakref.ref:
        demand_unobserved(trace, args[1:])
    if policy.is_pure_type(fn.__self__):
        return run(trace, fn, args, kwargs)
    return (_record if trace.calls.is_leaf(fn) else _refuse)(trace, fn, args, kwargs)


def _class_method(calls: Calls, fn: Any) -> Rule | None:
    """Return the rule for a class method or static method of a C type. None for any other function."""
    owner = _owner(fn)
    if not isinstance(owner, type):
        return None
    for base in type.__dict__["__mro__"].__get__(owner):
        descriptor = base.__dict__.get(fn.__name__)
        if isinstance(descriptor, (types.ClassMethodDescriptorType, staticmethod)):
            if calls.is_leaf(descriptor):
                return partial(_record_on_class, descriptor)
            if not policy.is_pure_type(base) or descriptor in policy.IMPURE_METHODS:
                return None
            is_bound = not isinstance(descriptor, staticmethod) and not policy.is_pure_type(owner)
            return partial(_run_on_class, descriptor) if is_bound else run
    return None


def _run_on_class(method: Any, trace: Trace, fn: Any, args: Args, kwargs: Kwargs) -> Any:
    """Run ``method``, a class method of a C type, on the class for which it was called."""
    # The method may call the program's ``__new__``. If a run fails because of a symbol, it is repeated with
    # all its effects.
    return run(trace, method, (fn.__self__, *specialized(trace, args)), kwargs)


def _record_on_class(method: Any, trace: Trace, fn: Any, args: Args, kwargs: Kwargs) -> Any:
    """Record ``method``, a class method of a tensor class, on the class for which it was called."""
    return _record(trace, method, (fn.__self__, *args), kwargs)


def _pure_method(_calls: Calls, fn: Any) -> Rule | None:
    """Return the rule for a method of a pure C type. None for any other method."""
    return _run_method if policy.is_pure_method(fn) else None


@calls_program
def _run_method(trace: Trace, fn: Callable[..., Any], args: Args, kwargs: Kwargs) -> Any:
    """Run a method of a pure C type. If the method only moves its arguments, they are not scanned. Break the
    graph at the ``__init__`` of an exception from outside.
    """
    objects = trace.objects
    if (
        fn.__name__ == "__init__"
        and isinstance(args[0] if args else None, BaseException)
        and objects.is_preexisting(args[0])
    ):
        raise graph_break("unsupported-object", f"{fn.__qualname__} of an exception from outside")
    if traits_of(fn) & MOVES:
        if objects.lazy and id(args[0]) in objects.lazy:
            objects.expand(args[0])
        return fn(*args, **kwargs)
    return run(trace, fn, args, kwargs)


def _slot_of_tensor(_calls: Calls, fn: Any) -> Rule | None:
    """Return the rule for a slot method of a tensor, or for an accessor such as ``torch.Tensor.T.__get__``.
    None for any other slot method.
    """
    if isinstance(fn.__self__, torch.Tensor):
        return _record
    return _call_accessor if is_accessor(fn) else None


def _call_accessor(trace: Trace, fn: Callable[..., Any], args: Args, _kwargs: Kwargs) -> Any:
    """Read or write an attribute through the accessor that a C class defines."""
    return trace.torch.accessed(fn, args)


def _slot_behind(fn: Any) -> Any:
    """Return the slot method of the class that ``fn`` binds to an object, for example ``list.__len__``."""
    return fn.__objclass__.__dict__[fn.__name__]


def _forward_slot(_trace: Trace, fn: Any, args: Args, kwargs: Kwargs) -> Request:
    """Forward the call of a bound slot method to the slot method of the class."""
    return _slot_behind(fn), (fn.__self__, *args), kwargs


# --- classes and objects ----------------------------------------------------------------------------


def _by_metaclass(calls: Calls, cls: type) -> Rule | None:
    """Return the rule that calls ``__call__`` of the metaclass, if the metaclass defines it in Python.
    Otherwise, return None.
    """
    meta = type(cls)
    method = None if meta is type else calls.objects.classes.lookup(meta, "__call__")
    # A class is no descriptor. For example, the ``__call__`` of a ``TypedDict`` class is ``dict``.
    if isinstance(method, type):
        return lambda _trace, _cls, args, kwargs: (method, args, kwargs)
    return partial(_forward_call, method) if type(method) is types.FunctionType else None


def _forward_call(method: Any, _trace: Trace, fn: Callable[..., Any], args: Args, kwargs: Kwargs) -> Request:
    """Forward the call of an object to ``method``, the ``__call__`` of its class."""
    return method, (fn, *args), kwargs


def _by_python_call(calls: Calls, fn: object) -> Rule | None:
    """Return the rule that calls ``__call__`` of the class, if this is a Python function. Otherwise, return
    None.
    """
    method = None if isinstance(fn, torch.Tensor) else calls.objects.classes.lookup(type(fn), "__call__")
    return partial(_forward_call, method) if type(method) is types.FunctionType else None


@calls_program
def _call_object(trace: Trace, fn: Callable[..., Any], args: Args, kwargs: Kwargs) -> Any:
    """Call an object whose class defines ``__call__`` in C, or a tensor of a class of the program."""
    calls = trace.calls
    cls = trace.torch.python_type(fn) if isinstance(fn, torch.Tensor) else type(fn)
    method = calls.objects.classes.lookup(cls, "__call__")
    if method is ABSENT:
        raise TypeError(f"'{cls.__name__}' object is not callable")
    if type(method) is types.FunctionType:
        return calls.call(method, (fn, *args), kwargs)
    if policy.is_pure_type(type(fn)) or method is _REFERENT:
        return run(trace, fn, args, kwargs)
    if isinstance(method, types.WrapperDescriptorType):
        return _refuse(trace, fn, args, kwargs)
    return calls.call(calls.objects.bind(method, fn), args, kwargs)


_REFERENT = weakref.ref.__dict__["__call__"]
"""The ``__call__`` of weak references."""

# --- the order --------------------------------------------------------------------------------------

SOURCES: Final[tuple[tuple[str, Callable[[], Mapping[int, Rule]]], ...]] = (
    ("rule that the program registered", registered_rules),
    ("rule that the program gave to torch.compile", rules_by_torch),
    ("launch of a Triton kernel", launch_rules),
    ("rule of this package (calls/rules)", lambda: RULES.objects),
)
"""The sources of rules by the id of the callable: name and function.

Rules from the options of a trace come before all sources.
"""

_FUNCTION: Final = (types.FunctionType,)
_BUILTIN: Final = (types.BuiltinFunctionType, BUILTIN_METHOD)
_DESCRIPTOR: Final = (
    types.MethodDescriptorType,
    types.WrapperDescriptorType,
    types.ClassMethodDescriptorType,
)
_SLOT: Final = (types.MethodWrapperType,)
_BOUND: Final = (types.MethodType, functools.partial)
_KINDS: Final = (*_FUNCTION, *_BOUND, *_BUILTIN, *_DESCRIPTOR, *_SLOT, *RULES.classes)
"""The kinds of callables that have rows of their own, as classes."""
_NATIVELY: Final = "runs for real: it reads and changes nothing but its arguments"


def _source(name: str, source: Callable[[], Mapping[int, Rule]]) -> Case:
    """Return the row for one source of rules by identity."""
    return Case(name, (*_KINDS, type, object), lambda _calls, fn: source().get(id(fn)))


def _always(rule: Rule) -> Callable[[Any, Any], Rule]:
    """Return a ``find`` that applies to all callables of the row's kinds."""
    return lambda _calls, _fn: rule


INTERPRETED: Final = Case(
    "Python code", _FUNCTION, _always(_interpret), "interprets the bytecode of the function"
)
CLASS: Final = Case(
    "class", (type,), _always(classes.construct), "calls __new__ and __init__ as type.__call__ does"
)
_LEAVES: Final = (*_FUNCTION, *_BUILTIN, *_DESCRIPTOR, type, object)
"""The kinds of callables that the tracer may record as a node."""

PRECEDENCE: Final = (
    *(_source(*row) for row in SOURCES),
    Case(
        "rule of the class",
        tuple(RULES.classes),
        lambda _calls, fn: RULES.classes.get(type(fn)),
        instead=_inner,
    ),
    Case(
        "method",
        (types.MethodType,),
        _always(_forward_bound),
        "calls the function with the object",
        forwards=True,
        instead=_inner,
    ),
    Case(
        "partial object",
        (functools.partial,),
        _always(_forward_partial),
        "calls the function with the kept arguments",
        forwards=True,
        instead=_inner,
    ),
    Case("slot of a tensor", _SLOT, _slot_of_tensor, "records one node, or reads or writes an attribute"),
    Case(
        "bound slot",
        _SLOT,
        _always(_forward_slot),
        "calls the slot of the type with the object",
        forwards=True,
        instead=_slot_behind,
    ),
    Case(
        "bound C method",
        _BUILTIN,
        _bound_method,
        "calls the method of the type with the object",
        forwards=True,
        instead=_method_behind,
    ),
    Case("pure C function", _BUILTIN, _pure_function, _NATIVELY),
    Case(
        "constructor in C",
        _BUILTIN,
        _constructor,
        "makes the object for real if the type is pure, else breaks the graph",
    ),
    Case("class method in C", _BUILTIN, _class_method, _NATIVELY),
    Case("method of a pure type", _DESCRIPTOR, _pure_method, _NATIVELY),
    Case("metaclass", (type,), _by_metaclass, "calls __call__ of the metaclass", forwards=True),
    Case("pure class", (type,), lambda _calls, cls: run if policy.is_pure_type(cls) else None, _NATIVELY),
    Case("rule of the tracer (torch_side/rules)", _LEAVES, _tracer_rule, run=_record),
    Case(
        "operator",
        _LEAVES,
        lambda calls, fn: TorchTracer.record if calls.is_leaf(fn) else None,
        "records one node of the graph",
        run=_record,
    ),
    Case("rule of the code", _FUNCTION, lambda _calls, fn: RULES.of_code(fn)),
    Case("rule of the name", _FUNCTION, lambda _calls, fn: RULES.of_name(fn)),
    Case("debugger", _FUNCTION, lambda _calls, fn: call_debugger if is_debugger(fn) else None),
    Case(
        "wrapper of torch's compiler",
        _FUNCTION,
        lambda _calls, fn: call_original if fn.__dict__ and is_only_torchs_compilers(fn) else None,
        "calls the wrapped function",
    ),
    Case(
        "marked",
        _FUNCTION,
        lambda _calls, fn: rule_of_mark(fn),
        "does what a mark of torch.compiler or of this package says",
    ),
    INTERPRETED,
    CLASS,
    Case("object", (object,), _by_python_call, "calls __call__ of the class", forwards=True),
    Case("object of a C class", (object,), _always(_call_object), "calls __call__ of the class"),
    Case("refused", (*_BUILTIN, *_DESCRIPTOR), _always(_refuse), "breaks the graph"),
)
"""All rows, in the order in which they are asked. The last row for each kind of callable always applies."""

CASES: Final[Mapping[type, tuple[Case, ...]]] = {
    kind: tuple(case for case in PRECEDENCE[len(SOURCES) :] if kind in case.kinds)
    for kind in (*_KINDS, type, object)
}
"""Maps a kind of callable to its rows in ``PRECEDENCE``, without the rules by identity."""


def cases_of(fn: object) -> tuple[Case, ...]:
    """Return the cases that may decide a call of ``fn`` if ``fn`` has no rule by identity. The last case
    always applies.
    """
    return CASES.get(type(fn)) or CASES[type if isinstance(fn, type) else object]
