"""Tensors of symbolic numbers, alone or in lists (``torch.tensor([rows, columns])``): the numbers stay symbolic.

Each number becomes a tensor of its own; those of a list are stacked. A list of another kind is left to torch, which
takes the plain numbers.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import torch
from torch._subclasses.fake_tensor import FakeTensor

from fxstack_capture.torch_side.execution import name_of

if TYPE_CHECKING:
    from fxstack_capture.torch_side.tracer import TorchTracer

_NOTHING: dict[str, Any] = {}
_SYMBOLIC = (torch.SymInt, torch.SymFloat)
_REAL = (float, torch.SymFloat)
_LISTS = (list, tuple, torch.Size)
_LARGEST = 2**53
"""Whole numbers up to here are themselves in every dtype that lists are made of."""


SCALAR_ARGUMENTS = frozenset({"alpha", "beta", "value"})
"""Keywords of operators that take numbers."""


def with_scalars(tracer: TorchTracer, fn: object, kwargs: dict[str, Any]) -> dict[str, Any]:
    """Tensors where an operator takes a number: torch calls ``item()``, whose value Python never sees."""
    names = {"alpha", "beta"} if "addc" not in name_of(fn) else {"value"}
    return {
        name: tracer.number_in(value)
        if name in names and isinstance(value, FakeTensor) and value.dim() == 0
        else value
        for name, value in kwargs.items()
    }


def takes(data: Any, kwargs: dict[str, Any]) -> bool:
    dtype = kwargs.get("dtype")
    if dtype is not None and not isinstance(dtype, torch.dtype):  # a class of Python, or a mistake
        return False
    if type(data) not in _LISTS:
        return type(data) in _SYMBOLIC
    real = dtype is None or dtype.is_floating_point
    fits = dtype in (None, torch.int64) or (real and dtype.itemsize > 1)
    return fits and any(type(v) in _SYMBOLIC for v in data) and all(_plain(v, real) for v in data)


def _plain(value: Any, real: bool) -> bool:
    kind = type(value)
    if kind is torch.SymInt:  # where the program's own number is too large, torch is to say so
        value = 0 if value.node.hint is None else value.node.hint
    elif kind is not int:
        return real and kind in _REAL
    return -_LARGEST <= value <= _LARGEST  # type: ignore[no-any-return]


def make(tracer: TorchTracer, data: Any, kwargs: dict[str, Any]) -> Any:
    """``kwargs`` are those of ``torch.tensor``."""
    options = {name: value for name, value in kwargs.items() if value is not None}
    requires_grad = options.pop("requires_grad", False)
    numbers = data if type(data) in _LISTS else (data,)
    if "dtype" not in options:
        real = any(type(value) in _REAL for value in numbers)
        options["dtype"] = torch.get_default_dtype() if real else torch.int64
    made: Any = [_of_number(tracer, value, options) for value in numbers]
    made = tracer.record(torch.stack, (made,), {}) if numbers is data else made[0]
    if requires_grad:
        return tracer.call(torch.Tensor.requires_grad_, (made,), _NOTHING)
    return made


def new_tensor(tracer: TorchTracer, fn: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    """``Tensor.new_tensor``: as ``torch.tensor``, of the tensor's dtype and device if none are given."""
    if len(args) == 2 and kwargs.keys() <= {"dtype", "device", "requires_grad"}:
        like, data = args
        given = {name: value for name, value in kwargs.items() if value is not None}
        options = {"dtype": like.dtype, "device": like.device, **given}
        if takes(data, options) and _fits(data, options["dtype"]):
            return make(tracer, data, options)
    return tracer.record(fn, args, kwargs)


def _fits(number: Any, dtype: torch.dtype) -> bool:
    """A float alone is not asked for as a whole number."""
    return type(number) is not torch.SymFloat or dtype.is_floating_point


def _of_number(tracer: TorchTracer, number: Any, options: dict[str, Any]) -> Any:
    dtype = options["dtype"]
    if not dtype.is_floating_point:
        return tracer.record(torch.scalar_tensor, (number,), options)
    # what is too large for it becomes infinite
    made = tracer.record(torch.scalar_tensor, (number,), {**options, "dtype": torch.float64})
    return tracer.record(torch.Tensor.to, (made, dtype), _NOTHING)
