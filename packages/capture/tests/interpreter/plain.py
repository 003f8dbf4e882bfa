"""Siblings of the interpreter that do the native thing, and a comparison with CPython.

``check(fn, *args)`` runs ``fn`` in CPython and in the interpreter, on fresh copies of the
arguments, and compares what it returns or raises.
"""

from __future__ import annotations

import copy
import types
from types import SimpleNamespace

from fxstack_capture.callers import calls_program
from fxstack_capture.interpreter.frame_rules import FRAME_RULES, super_arguments
from fxstack_capture.interpreter.generators import TraceGenerator
from fxstack_capture.interpreter.machine import BytecodeInterpreter
from fxstack_capture.options import CaptureOptions
from fxstack_capture.trace.records import RETURNED, Returned, TracePlan
from fxstack_capture.versions.instruction_sets import program_table


class PlainWorld:
    """Nothing is pre-existing; no guards."""

    opaque = frozenset()
    iterators = {}
    append_only = {}
    instances = {}
    registry = SimpleNamespace(by_original=SimpleNamespace(get=lambda _key: SimpleNamespace(proxy=None)))
    distinctions = SimpleNamespace(note_compared=lambda _left, _right: None)

    def enter(self, obj, source):
        return obj

    def load_attr(self, obj, name):
        return getattr(obj, name)

    def load_special(self, obj, name):
        for base in type(obj).__mro__:
            if name in vars(base):
                raw = vars(base)[name]
                return raw.__get__(obj, type(obj)) if hasattr(type(raw), "__get__") else raw
        raise AttributeError(name)

    def store_attr(self, obj, name, value):
        setattr(obj, name, value)

    def delete_attr(self, obj, name):
        delattr(obj, name)

    def load_global(self, namespace, builtins, name):
        if name in namespace:
            return namespace[name]
        if name in builtins:
            return builtins[name]
        raise NameError(f"name '{name}' is not defined", name=name)

    def store_global(self, namespace, name, value):
        namespace[name] = value

    def delete_global(self, namespace, name):
        if name not in namespace:
            raise NameError(f"name '{name}' is not defined", name=name)
        del namespace[name]

    def function_parts(self, fn):
        return fn.__defaults__ or (), fn.__kwdefaults__ or {}, fn.__closure__ or ()

    def load_cell(self, cell):
        return cell.cell_contents

    def namespace(self, _namespace):
        return SimpleNamespace(is_deferred=lambda _name: False)

    def note_new(self, obj):
        pass

    def is_new(self, obj):
        return True

    def expand(self, obj):
        """Nothing is lazy here."""


class PlainCalls:
    """Python functions are interpreted, also as methods and constructors; the rest is called."""

    def __init__(self, trace):
        self.trace = trace
        self.rules = FRAME_RULES

    def call(self, fn, args, kwargs):
        kind = type(fn)
        interp = self.trace.interp
        if kind is types.FunctionType:
            if fn.__code__.co_flags & 0x280 or getattr(fn, "native", False):
                return fn(*args, **kwargs)
            return interp.call_function(fn, args, kwargs)
        if kind is types.MethodType:
            return self.call(fn.__func__, (fn.__self__, *args), kwargs)
        if isinstance(fn, type):
            return self._construct(fn, args, kwargs)
        if fn is globals:
            return interp.current_frame().globals
        if fn is eval or fn is exec:
            return self._evaluate(fn, args, kwargs)
        rule = self.rules.get(fn) if kind is types.BuiltinFunctionType else None
        if rule is not None and (not args or fn.__name__ == "__build_class__"):
            return rule(interp, args, kwargs)
        return fn(*args, **kwargs)

    def is_interpreted(self, fn):
        return not (getattr(fn, "native", False) or fn.__code__.co_flags & 0x280)

    def call_linked(self, fn, args, kwargs):
        if type(fn) is types.FunctionType and self.is_interpreted(fn):
            return self.trace.interp.call_linked(fn, args, kwargs, RETURNED)
        return self.call(fn, args, kwargs)

    def _evaluate(self, fn, args, kwargs):
        frame = self.trace.interp.current_frame()
        if all(arg is None for arg in args[1:]) and not kwargs:
            args = (args[0], frame.globals, frame.local_values())
        if isinstance(args[0], str):
            # Without the __future__ imports of this file.
            code = compile(args[0].lstrip(" \t"), "<string>", fn.__name__, dont_inherit=True)
            args = (code, *args[1:])
        return fn(*args, **kwargs)

    def _construct(self, cls, args, kwargs):
        if cls is super and not args:
            return super(*super_arguments(self.trace.interp.current_frame()))
        init = cls.__init__
        if (
            type(cls).__call__ is not type.__call__
            or cls.__new__ is not object.__new__
            or type(init) is not types.FunctionType
        ):
            return cls(*args, **kwargs)
        obj = object.__new__(cls)  # raises what an abstract class raises
        result = self.call(init, (obj, *args), kwargs)
        if result is not None:
            raise TypeError(f"__init__() should return None, not '{type(result).__name__}'")
        return obj

    def native(self, fn, args, kwargs):
        return fn(*args, **kwargs)

    def special_method(self, obj, name):
        return None

    def binary(self, op, left, right):
        return op(left, right)

    def unary(self, op, value):
        return op(value)

    def truth(self, value):
        return bool(value)

    def iterate(self, value):
        return value if type(value) is TraceGenerator else iter(value)

    def next(self, iterator):
        return next(iterator)


def interpreter(programs=None):
    trace = SimpleNamespace(options=CaptureOptions(), objects=PlainWorld(), plan=TracePlan())
    trace.guard = lambda _source, _check: None
    trace.objects.trace = trace
    trace.calls = PlainCalls(trace)
    trace.interp = BytecodeInterpreter(trace, programs or program_table())
    return trace.interp


def interpreted(fn, *args, **kwargs):
    """The result of a function, interpreted."""
    return interpreter().call_function(fn, args, kwargs)


def interpreted_root(fn, *args):
    """The outcome of a function whose arguments are the root frame's locals."""
    from fxstack_capture.sources import Local
    from fxstack_capture.trace.records import DeferredLocal

    code = fn.__code__
    values = {name: DeferredLocal(value, Local(name)) for name, value in zip(code.co_varnames, args)}
    return interpreter().run_root(fn, code, values, None)


def outcome(call, *args):
    """("value", repr) or ("raised", type, message, causes)."""
    try:
        result = call(*args)
    except Exception as error:
        return ("raised", *describe(error))
    return ("value", type(result).__name__, show(result))


def describe(error, depth=4):
    """Type, message and chain of an exception."""
    if error is None or depth == 0:
        return None
    inner = ()
    if isinstance(error, BaseExceptionGroup):
        inner = tuple(describe(e, depth - 1) for e in error.exceptions)
    return (
        type(error).__name__,
        str(error),
        describe(error.__cause__, depth - 1),
        describe(error.__context__, depth - 1),
        error.__suppress_context__,
        inner,
    )


def show(value):
    text = repr(value)
    return text if " at 0x" not in text else text.split(" at 0x")[0]


def check(fn, *args):
    """Assert that CPython and the interpreter agree, and give the outcome."""
    expected = outcome(fn, *copy.deepcopy(args))
    actual = outcome(lambda *a: interpreted(fn, *a), *copy.deepcopy(args))
    assert actual == expected, f"interpreted {actual}, CPython {expected}"
    if all(kind not in expected for kind in ("raised",)) and not fn.__code__.co_kwonlyargcount:
        rooted = interpreted_root(fn, *copy.deepcopy(args)) if _only_positional(fn, args) else None
        if rooted is not None:
            assert isinstance(rooted, Returned)
            assert show(rooted.value) == expected[2]
    return expected


def _only_positional(fn, args):
    code = fn.__code__
    return code.co_argcount == len(args) and not code.co_flags & 0x2C


# All that is called here is what the program calls.
for _double in (PlainWorld, PlainCalls):
    for _method in vars(_double).values():
        if isinstance(_method, types.FunctionType):
            calls_program(_method)
