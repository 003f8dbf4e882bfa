"""Operators of the program with a fake function in Python (``torch.library.register_fake``)."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from pathlib import Path
from types import FunctionType
from typing import Any

import torch

from fxstack_interchange import torch_compat
from fxstack_interchange.torch_compat import CustomOpDef, OpOverload, OpOverloadPacket

_TORCH = str(Path(torch.__file__).parent) + "/"


def operator_of(fn: object) -> OpOverload | None:
    """Return the operator that a call of ``fn`` runs. Return None for a packet of several overloads."""
    if isinstance(fn, CustomOpDef):
        return fn._opoverload
    if isinstance(fn, OpOverloadPacket):
        overloads = fn.overloads()
        return getattr(fn, overloads[0]) if len(overloads) == 1 else None
    return fn if isinstance(fn, OpOverload) else None


def fake_function(operator: OpOverload) -> tuple[Any, str] | None:
    """Return the program's fake function of an operator and the place of its registration, or None.

    Operators of torch and of fxstack have no fake function of the program.
    """
    name = operator.name()
    definition = torch_compat.OPDEFS.get(name.removesuffix(".default"))
    if definition is not None:
        function = definition._abstract_fn
        return None if function is None else (inspect.unwrap(function), "")
    kernel = torch_compat.simple_registry.singleton.find(name).fake_impl.kernel
    if kernel is None or operator.namespace.startswith("fxstack") or kernel.source.startswith(_TORCH):
        return None
    return inspect.unwrap(_registered(kernel.func)), kernel.source


def _registered(function: Callable[..., Any]) -> Callable[..., Any]:
    """Return the function that the program gave to ``torch.library``, which wraps it in a closure."""
    if isinstance(function, FunctionType) and function.__module__ == "torch.library":
        function_of_user = inspect.getclosurevars(function).nonlocals.get("func")
        return function_of_user if callable(function_of_user) else function
    return function


def custom_operator(fn: object) -> str:
    """Return the name of the program's operator that ``fn`` calls, if it has a fake function, else ""."""
    operator = operator_of(fn)
    if operator is None or operator.namespace == "aten" or fake_function(operator) is None:
        return ""
    return str(operator.name()).removesuffix(".default")


def describe_fake_function(name: str) -> str:
    """Return a text for error messages: the operator, its fake function, and the function's file and line."""
    namespace, _, rest = name.partition("::")
    packet, _, overload = rest.partition(".")
    operator = getattr(getattr(getattr(torch.ops, namespace), packet), overload or "default")
    function, location = fake_function(operator) or (None, "")
    code = getattr(function, "__code__", None)
    location = f"{code.co_filename}:{code.co_firstlineno}" if code is not None else location
    label = getattr(function, "__qualname__", None) or repr(function)
    return f"the fake function {label}{f' ({location})' if location else ''} of the operator {name}"
