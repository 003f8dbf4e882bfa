"""Compilers called inside of compiled code: what they are given is part of the graph anyway.

``torch.compile(fn)`` and ``torch.jit.script(fn)`` compute what ``fn`` does, so ``fn`` is inlined. Modules keep the wrapper
that a compiler gives them, which is an object that a program can look at: that ends the graph.
"""

from __future__ import annotations

from types import FunctionType, MethodType
from typing import Any

import torch

from fxstack_capture.breaks import graph_break
from fxstack_capture.calls.table import RuleTable
from fxstack_capture.trace.state import Calls, Trace

RULES: RuleTable = RuleTable()


@RULES.rule(torch.compile)
def compiled_inside(trace: Trace, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    """The rule for ``torch.compile`` and ``fxstack.compile``, also as decorators."""
    model = args[0] if args else kwargs.get("model")
    return _decorator if model is None else _inlined(model)


def _decorator(model: object) -> Any:
    """What ``torch.compile()`` is inside: calls of it have the rule below."""
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

    TorchScript hands a float to a parameter that is annotated as one, also where the program gives an integer.
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
