"""Tensors created by calling a class: ``torch.Tensor``, ``torch.LongTensor`` and similar classes, ``torch.nn.Parameter``.

Integers are the sizes of uninitialised memory. Sequences of numbers and arrays are data. A tensor gives an
alias. Other arguments of these constructors (storages, numbers of another kind) break the graph.
"""

from __future__ import annotations

import inspect
from typing import Any

import torch
from torch import nn

from fxstack_capture.breaks import graph_break
from fxstack_capture.callers import calls_program, plainly
from fxstack_capture.calls.rules import RULES
from fxstack_capture.numpy_side.array import Array
from fxstack_capture.torch_side.numbers import number_tensors
from fxstack_capture.trace.state import Args, Kwargs, Trace

_CLASSES: dict[Any, torch.dtype | None] = {
    torch.Tensor: None,
    torch.FloatTensor: torch.float32,
    torch.DoubleTensor: torch.float64,
    torch.HalfTensor: torch.float16,
    torch.BFloat16Tensor: torch.bfloat16,
    torch.LongTensor: torch.int64,
    torch.IntTensor: torch.int32,
    torch.ShortTensor: torch.int16,
    torch.CharTensor: torch.int8,
    torch.ByteTensor: torch.uint8,
    torch.BoolTensor: torch.bool,
}
"""The dtype that each class makes. For ``torch.Tensor`` it is the default dtype."""


@RULES.rule(*_CLASSES)
def _make(trace: Trace, cls: Any, args: Args, kwargs: Kwargs) -> Any:
    """Make a tensor of sizes or of data, as the class does."""
    fixed = _CLASSES[cls]
    dtype = torch.get_default_dtype() if fixed is None else fixed
    options = {"dtype": dtype, "device": "cpu"}
    kwargs = _without_device(kwargs)
    if not kwargs and all(_is_size(number) for number in args):
        return trace.calls.call(torch.empty, (args or (0,),), options)
    if not kwargs and len(args) == 1:
        (data,) = args
        if type(data) is torch.Size:
            return trace.calls.call(torch.empty, (data,), options)
        if isinstance(data, torch.Tensor):
            return _alias(trace, cls, data, fixed)
        if type(data) is Array and data.example.ndim > 0:
            return trace.calls.call(torch.as_tensor, (data,), options)
        if type(data) is range:
            data = list(data)
        if type(data) in (list, tuple) and _is_data(data, dtype):
            return trace.calls.call(torch.tensor, (data,), options)
    raise graph_break("unsupported-call", f"the class {cls.__module__}.{cls.__name__}")


def _without_device(kwargs: Kwargs) -> dict[str, Any]:
    """Return the keywords without ``device`` if it is the CPU, where these classes create tensors anyway."""
    device = kwargs.get("device")
    plain = isinstance(device, (str, torch.device)) and str(device) == "cpu"
    return {name: v for name, v in kwargs.items() if name != "device" or not plain}


@calls_program
def _alias(trace: Trace, cls: type, data: torch.Tensor, fixed: torch.dtype | None) -> Any:
    """Make an alias of a tensor on the CPU. ``fixed`` is the dtype that the class demands, or None."""
    python_type = trace.torch.python_type(data)
    if python_type not in (torch.Tensor, torch.nn.Parameter) or data.device.type != "cpu":
        raise graph_break("unsupported-call", f"{cls.__name__} of a {python_type.__name__}")
    if fixed is not None and data.dtype != fixed:
        cls(torch.empty(0, dtype=data.dtype))  # raises
    return trace.calls.call(torch.ops.aten.alias.default, (data,), {})


def _is_size(number: object) -> bool:
    """Whether an argument is a size."""
    return type(number) is int or isinstance(number, torch.SymInt)


def _is_data(data: object, dtype: torch.dtype) -> bool:
    """Whether ``data`` is a nested sequence of numbers that old and new constructors treat alike."""
    kinds = _KINDS.get(dtype, (bool, int, float, torch.SymInt, torch.SymFloat))
    return _holds_only(data, kinds) or number_tensors.can_make(data, {"dtype": dtype})


def _holds_only(data: Any, kinds: tuple[type, ...]) -> bool:
    """Whether ``data`` is a nested sequence of values of these classes."""
    if type(data) in (list, tuple):
        return all(_holds_only(item, kinds) for item in data)
    return type(data) in kinds


_KINDS: dict[torch.dtype, tuple[type, ...]] = {
    torch.bool: (bool, int),
    **dict.fromkeys((torch.int64, torch.int32, torch.int16, torch.int8, torch.uint8), (int, torch.SymInt)),
}
"""The classes of numbers that become each dtype without a change. Other dtypes take all numbers."""


@RULES.rule(nn.Parameter)
def _make_parameter(trace: Trace, _fn: object, args: Args, kwargs: Kwargs) -> Any:
    """Make a new leaf that shares the memory of its data."""
    bound = plainly(_OF_PARAMETER.bind, (nn.Parameter, *args), kwargs)
    bound.apply_defaults()
    _, data, requires_grad = bound.args
    if data is None:
        data = trace.torch.call(torch.empty, (0,), {})
    return trace.torch.parameter(data, bool(requires_grad))


_OF_PARAMETER = inspect.signature(nn.Parameter.__new__)
