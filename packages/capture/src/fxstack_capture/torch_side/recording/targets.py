"""The node of a call: a function with an importable name, or a tensor method by name."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from types import (
    BuiltinFunctionType,
    FunctionType,
    MethodDescriptorType,
    MethodType,
    MethodWrapperType,
    WrapperDescriptorType,
)
from typing import Any

import torch

from fxstack_capture.operator_protocol import COMPARISON_NAMES, OUT_OF_PLACE, function_of
from fxstack_capture.torch_compat import CustomOpDef
from fxstack_capture.torch_side.global_state.import_snapshot import torchs_own
from fxstack_capture.trace.state import Args, Kwargs

# Special methods that become operators, because torch.fx and its passes know the operators as functions.
_OPERATORS: dict[str, Callable[..., Any]] = {
    f"__{name}__": function_of(name)
    for name in (
        *("getitem", "setitem", "add", "sub", "mul", "truediv", "mod", "matmul", "and", "or", "xor"),
        *("neg", "pos", "abs", "invert", *COMPARISON_NAMES),
    )
}

_RENAMED: dict[FunctionType, str] = {
    value: name
    for name, value in vars(torch.Tensor).items()
    if isinstance(value, FunctionType) and value.__name__ != name
}
"""Methods of ``torch.Tensor`` whose ``__name__`` differs: ``Tensor.__pow__.__name__`` is ``pow``."""


@dataclass(frozen=True, slots=True)
class Target:
    """``op`` and ``target`` of the node, and the positional arguments, which begin with a bound ``self``."""

    op: str
    target: Callable[..., Any] | str
    args: Args


def target_of(fn: Any, args: Args) -> Target:
    """Return the target of the node for a call ``fn(*args)``."""
    kind = type(fn)
    if kind is MethodType and isinstance(fn.__self__, torch.Tensor):
        return _method(fn.__func__.__name__, (fn.__self__, *args))
    if kind in (BuiltinFunctionType, MethodWrapperType) and isinstance(fn.__self__, torch.Tensor):
        return _method(fn.__name__, (fn.__self__, *args))
    if kind in (MethodDescriptorType, WrapperDescriptorType):
        return _method(fn.__name__, args)
    name = getattr(fn, "__name__", "")
    if kind is FunctionType:
        name = _RENAMED.get(fn, name)
    if getattr(torch.Tensor, name, None) is fn:
        return _method(name, args)
    if kind is BuiltinFunctionType and fn in OUT_OF_PLACE and not isinstance(args[0], torch.Tensor):
        # ``number += tensor`` computes ``number + tensor``, because a number cannot change in place.
        return Target("call_function", OUT_OF_PLACE[fn], args)
    if kind is BuiltinFunctionType and fn.__module__ == "torch":
        return Target("call_function", _printable(fn), args)
    if isinstance(fn, CustomOpDef):
        return Target("call_function", fn._opoverload, args)
    return Target("call_function", fn, args)


def without_from(target: Target, kwargs: Kwargs) -> tuple[Target, dict[str, Any]]:
    """Pass the argument ``from`` by position: ``x.random_(from=0, to=9)`` becomes ``x.random_(0, to=9)``."""
    # ``from`` is a keyword of Python, so the code of the graph cannot contain ``from=0``.
    rest = {name: value for name, value in kwargs.items() if name != "from"}
    return replace(target, args=(*target.args, kwargs["from"])), rest


def _method(name: str, args: Args) -> Target:
    if name == "new" and len(args) > 1 and isinstance(args[1], torch.Size):
        # A node holds a size as a plain tuple. ``new`` takes a plain tuple as data.
        return Target("call_method", "new_empty", args)
    function = _OPERATORS.get(name)
    # A special method may return NotImplemented. The operator then calls the reflected method. So both are
    # equal only between tensors and numbers.
    if function is not None and all(isinstance(a, (torch.Tensor, int, float)) for a in args[1:2]):
        return Target("call_function", function, args)
    return Target("call_method", name, args)


def _printable(fn: BuiltinFunctionType) -> Any:
    """Return ``fn``, or the operator packet if ``torch.<name>`` is a Python function around ``fn``."""
    name = fn.__name__
    return fn if torchs_own(name, fn) is fn else getattr(torch.ops.aten, name, fn)
