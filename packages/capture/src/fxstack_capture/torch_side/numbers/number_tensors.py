"""Tensors made from unknown numbers, alone or in (nested) lists: ``torch.tensor([rows, columns])``.

A symbolic number becomes a tensor, and stays symbolic. A tensor with one element stays a tensor, although
torch would read its number. The rule stacks the tensors of a list. Torch itself handles any other list, with
the plain numbers.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import reduce
from typing import Any

import torch

from fxstack_capture.breaks import graph_break
from fxstack_capture.torch_compat import FakeTensor
from fxstack_capture.torch_side.recording.execution import name_of
from fxstack_capture.torch_side.recording.protocol import TracerProtocol
from fxstack_capture.trace.state import Args, Kwargs

_SYMBOLIC = (torch.SymInt, torch.SymFloat)
_REAL = (float, torch.SymFloat)
_LISTS = (list, tuple, torch.Size)
_MAX_EXACT_INTEGER = 2**53
"""The largest integer up to which a conversion to one of the dtypes of such lists is exact."""

SCALAR_ARGUMENTS = frozenset({"alpha", "beta", "value"})
"""Keyword arguments of operators that must be numbers."""


def with_scalars(tracer: TracerProtocol, fn: object, kwargs: Kwargs) -> dict[str, Any]:
    """Return ``kwargs``. For the keywords ``alpha``, ``beta`` and ``value``, numbers replace tensors without
    dimensions.
    """
    # Eager calls ``item()`` in C++, so Python code never gets the number.
    names = {"alpha", "beta"} if "addc" not in name_of(fn) else {"value"}
    return {
        name: tracer.number_in(value)
        if name in names and isinstance(value, FakeTensor) and value.dim() == 0
        else value
        for name, value in kwargs.items()
    }


def can_make(data: object, kwargs: Kwargs) -> bool:
    """Return whether ``make`` can make ``torch.tensor(data, **kwargs)``.

    This is so if an item is unknown, and all items fit the dtype.
    """
    dtype = kwargs.get("dtype")
    if dtype is not None and not isinstance(dtype, torch.dtype):  # a Python class, or an invalid argument
        return False
    if type(data) not in _LISTS:
        return type(data) in _SYMBOLIC
    leaves = list(_leaves(data))
    unknown = {FakeTensor if isinstance(leaf, torch.Tensor) else type(leaf) for leaf in leaves}
    if unknown.isdisjoint((*_SYMBOLIC, FakeTensor)) or _shape(data) is None:
        return False
    if FakeTensor in unknown and torch.device(kwargs.get("device") or "cpu").type != "cpu":
        return False
    return all(_fits_in_list(leaf, _dtype_of(leaves, kwargs)) for leaf in leaves)


def _leaves(data: Any) -> Iterator[Any]:
    """Yield the items of a nested list."""
    if type(data) in _LISTS:
        for item in data:
            yield from _leaves(item)
    else:
        yield data


def _shape(data: Any) -> tuple[int, ...] | None:
    """Return the sizes of a nested list. None if its lists have different lengths."""
    if type(data) not in _LISTS:
        return ()
    shapes = {_shape(item) for item in data}
    inner = shapes.pop() if len(shapes) == 1 else None
    return None if inner is None else (len(data), *inner)


def _dtype_of(leaves: list[Any], kwargs: Kwargs) -> torch.dtype:
    """Return the dtype that torch gives to a tensor of all these leaves."""
    dtype: torch.dtype | None = kwargs.get("dtype")
    return dtype or reduce(torch.promote_types, map(_own_dtype, leaves))


def _own_dtype(leaf: object) -> torch.dtype:
    """Return the dtype that torch gives to a tensor of this number alone."""
    if isinstance(leaf, torch.Tensor):
        return leaf.dtype
    return torch.get_default_dtype() if type(leaf) in _REAL else torch.int64


def _fits_in_list(leaf: object, dtype: torch.dtype) -> bool:
    """Return whether the graph gives the same value as torch, which reads the number, for an item of a list."""
    if isinstance(leaf, torch.Tensor):
        return _is_one_number(leaf) and _keeps_value(leaf.dtype, dtype)
    real = dtype.is_floating_point
    return (dtype is torch.int64 or (real and dtype.itemsize > 1)) and _converts_exactly(leaf, real)


def _is_one_number(tensor: torch.Tensor) -> bool:
    """Return whether torch would convert the tensor, an item of a list, to a number. It then has one element."""
    plain = type(tensor) is FakeTensor and tensor.layout is torch.strided
    sizes = plain and all(type(size) is int and size == 1 for size in tensor.shape)
    return sizes and tensor.device.type == "cpu"


def _keeps_value(source: torch.dtype, target: torch.dtype) -> bool:
    """Return whether converting through a Python number gives the same value as converting the tensor."""
    if source == target or (source.is_floating_point and target.is_floating_point):
        return True
    return source in _EXACT and not target.is_complex and torch.promote_types(source, target) == target


_EXACT = (torch.bool, torch.uint8, torch.int8, torch.int16, torch.int32, torch.int64)
"""The dtypes whose values a Python int represents. Python converts the int as torch does, for floats through
float64.
"""


def _converts_exactly(value: Any, real: bool) -> bool:
    """Return whether a plain or symbolic number converts to the dtype exactly. ``real`` says that it is a
    float dtype.
    """
    kind = type(value)
    if kind is torch.SymInt:  # if the number is too large, torch raises the error
        value = 0 if value.node.hint is None else value.node.hint
    elif kind is not int:
        return real and kind in _REAL
    result: bool = -_MAX_EXACT_INTEGER <= value <= _MAX_EXACT_INTEGER
    return result


def make(tracer: TracerProtocol, data: object, kwargs: Kwargs) -> Any:
    """Record ``torch.tensor(data, **kwargs)``, and return the tensor. ``can_make`` is true for ``data``."""
    options = {name: value for name, value in kwargs.items() if value is not None}
    requires_grad = options.pop("requires_grad", False)
    leaves = list(_leaves(data))
    options["dtype"] = _dtype_of(leaves, kwargs)
    if any(isinstance(leaf, torch.Tensor) and leaf.requires_grad for leaf in leaves):
        _warn_of_gradients()
    result = _record_nested(tracer, data, options)
    if requires_grad:
        return tracer.call(torch.Tensor.requires_grad_, (result,), {})
    return result


def _warn_of_gradients() -> None:
    """Let torch warn that the result has no gradient. Torch gives this warning once in a process. Break the
    graph if the warning is an error.
    """
    try:
        torch.tensor([torch.zeros((), requires_grad=True)] * 2)
    except UserWarning as error:
        raise graph_break("side-effect-call", "a warning that is an error") from error


def _record_nested(tracer: TracerProtocol, data: Any, options: dict[str, Any]) -> Any:
    """Record the tensor of a number, a tensor or a nested list."""
    if type(data) in _LISTS:
        return tracer.record(torch.stack, ([_record_nested(tracer, v, options) for v in data],), {})
    if isinstance(data, torch.Tensor):
        return _of_tensor(tracer, data, options["dtype"])
    return _of_number(tracer, data, options)


def new_tensor(tracer: TracerProtocol, fn: Callable[..., Any], args: Args, kwargs: Kwargs) -> Any:
    """Apply the rule for ``Tensor.new_tensor``. Its defaults are the dtype and device of the tensor."""
    if len(args) == 2 and kwargs.keys() <= {"dtype", "device", "requires_grad"}:
        tensor, data = args
        explicit = {name: value for name, value in kwargs.items() if value is not None}
        options = {"dtype": tensor.dtype, "device": tensor.device, **explicit}
        # torch does not convert a single float to an integer dtype.
        fits = type(data) is not torch.SymFloat or options["dtype"].is_floating_point
        if fits and can_make(data, options):
            return make(tracer, data, options)
    return tracer.record(fn, args, kwargs)


def _of_tensor(tracer: TracerProtocol, tensor: torch.Tensor, dtype: torch.dtype) -> Any:
    """Record a tensor of one element as a scalar of the dtype. The scalar has no gradient."""
    if tensor.requires_grad:
        tensor = tracer.call(torch.Tensor.detach, (tensor,), {})
    number = tracer.record(torch.Tensor.reshape, (tensor, ()), {})
    if dtype.is_floating_point and tensor.dtype != dtype:
        number = tracer.record(torch.Tensor.to, (number, torch.float64), {})  # the dtype of Python's float
    return number if number.dtype == dtype else tracer.record(torch.Tensor.to, (number, dtype), {})


def _of_number(tracer: TracerProtocol, number: object, options: dict[str, Any]) -> Any:
    """Record the tensor of a number."""
    dtype = options["dtype"]
    if not dtype.is_floating_point:
        return tracer.record(torch.scalar_tensor, (number,), options)
    # If a number is too large for the dtype, it becomes infinite.
    wide = tracer.record(torch.scalar_tensor, (number,), {**options, "dtype": torch.float64})
    return tracer.record(torch.Tensor.to, (wide, dtype), {})
