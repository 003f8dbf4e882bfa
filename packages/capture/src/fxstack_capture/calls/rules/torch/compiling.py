"""Compilers that compiled code calls: their functions become part of the graph anyway.

``torch.compile(fn)`` and ``torch.jit.script(fn)`` compute the same result as ``fn``, so ``fn`` is inlined. A
compiler wraps a module in a new object, and the program can observe this object. Compiling a module therefore
breaks the graph.
"""

from __future__ import annotations

import inspect
from types import FunctionType, MethodType
from typing import Any

import torch
from torch import fx

from fxstack_capture.breaks import graph_break
from fxstack_capture.calls.table import RuleTable
from fxstack_capture.trace.state import Calls, Trace

RULES: RuleTable = RuleTable()


@RULES.rule(fx.Interpreter.__init__)
def _make_interpreter(trace: Trace, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    """Make an interpreter of torch.fx that keeps all values: nodes of its graph are C objects."""
    bound = _OF_INTERPRETER.bind(*args, **kwargs).arguments
    kept = {"garbage_collect_values": False, "graph": bound.get("graph")}
    return trace.interp.call_function(fx.Interpreter.__init__, (bound["self"], bound["module"]), kept)


_OF_INTERPRETER = inspect.signature(fx.Interpreter.__init__)


@RULES.rule(fx.Interpreter.run)
def _interpret(trace: Trace, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    """Run the code that torch.fx has generated from the graph of an interpreter."""
    self, *inputs = args
    load = trace.objects.load_attr
    module = load(self, "module")
    original = trace.objects.original_of(module)
    if (
        type(self) is fx.Interpreter
        and isinstance(original, fx.GraphModule)
        and not kwargs.get("initial_env")
    ):
        own = trace.objects.original_of(load(self, "graph")) is original.graph
        if own and original.graph.python_code("self").src == original.code:
            return trace.calls.call(load(module, "forward"), tuple(inputs), {})
    return trace.interp.call_function(fx.Interpreter.run, args, kwargs)


@RULES.rule(torch.compile)
def compiled_inside(trace: Trace, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    """The rule of ``torch.compile`` and ``fxstack.compile``, also as decorators."""
    model = args[0] if args else kwargs.get("model")
    return _decorator if model is None else _inlined(model)


def _decorator(model: object) -> Any:
    """The result of ``torch.compile()`` in compiled code. ``_decorated`` is the rule of its calls."""
    raise AssertionError("this has a rule")


@RULES.rule(_decorator)
def _decorated(trace: Trace, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    return _inlined(args[0] if args else kwargs.get("model"))


def _inlined(model: object) -> Any:
    if type(model) not in (FunctionType, MethodType):
        raise graph_break("disabled", f"compile of a {type(model).__qualname__}, in compiled code,")
    return model


def scripted(calls: Calls, fn: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    """A call of what ``torch.jit.script`` or ``torch.jit.trace`` made of a function: the function, if it is known.

    The graph breaks if the original function is not known. TorchScript converts an integer argument to a
    float if the parameter is annotated as float. This function does the same.
    """
    inner = getattr(fn, "_torchdynamo_inline", None)
    if type(inner) is not FunctionType:
        raise graph_break("unsupported-call", f"{fn.name}, a function of TorchScript")
    kinds = {argument.name: str(argument.type) for argument in fn.schema.arguments}
    given = [_converted(value, kind) for value, kind in zip(args, kinds.values(), strict=False)]
    named = {name: _converted(value, kinds.get(name, "")) for name, value in kwargs.items()}
    return calls.call(inner, (*given, *args[len(given) :]), named)


def _converted(value: object, kind: str) -> Any:
    return value * 1.0 if kind == "float" and isinstance(value, (int, torch.SymInt)) else value
