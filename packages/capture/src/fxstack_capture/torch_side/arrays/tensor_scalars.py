"""Changing NumPy scalars in torch calls: plain numbers where torch treats them as numbers, else constants."""

from __future__ import annotations

import operator
from collections.abc import Callable
from types import FunctionType
from typing import Any

import numpy as np
import torch

from fxstack_capture import torch_compat
from fxstack_capture.numpy_side.scalar import Scalar
from fxstack_capture.torch_side.arrays.tensor_arrays import takes_number
from fxstack_capture.torch_side.numbers.number_tensors import SCALAR_ARGUMENTS
from fxstack_capture.trace.numpy_types import NUMBERS, TORCH_OF
from fxstack_capture.trace.state import Args, Kwargs

_INDEXING = frozenset({operator.getitem, operator.setitem, operator.delitem})
_MAKING_TENSORS = (torch.tensor, torch.as_tensor)
_PLAIN = (np.float64, np.int64)
_CONTENTS = frozenset({"data", "obj", "input", "self"})
"""Parameters for which the dtype of the scalar matters."""


def for_call(fn: Callable[..., Any], args: Args, kwargs: Kwargs) -> tuple[tuple[Any, ...], dict[str, Any]]:
    """Return the arguments of a call without ``Scalar`` objects."""
    # A keyword argument that is a float64 or an int64 is a plain number to torch.
    if _is_of_program(fn):
        return tuple(map(_constant, args)), {name: _constant(v) for name, v in kwargs.items()}
    named = {
        name: value.item() if type(value) is Scalar and _is_number(value, name) else _constant(value)
        for name, value in kwargs.items()
    }
    if fn in _MAKING_TENSORS and len(args) == 1 and type(args[0]) is Scalar:
        dtype = named.get("dtype") or TORCH_OF[args[0].example.dtype]
        if dtype.is_floating_point or dtype == TORCH_OF[args[0].example.dtype]:
            return (args[0].item(),), {**named, "dtype": dtype}
    return operands(fn, args), named


def _is_number(value: Scalar, name: str) -> bool:
    kind = type(value.example)
    return kind in NUMBERS if name in SCALAR_ARGUMENTS else kind in _PLAIN and name not in _CONTENTS


def _is_of_program(fn: Callable[..., Any]) -> bool:
    """Whether code of the program gets the arguments. Such code may read the class of the scalar."""
    code = getattr(fn, "__func__", fn)
    if code is torch_compat.FUNCTION_APPLY:
        return True
    return type(code) is FunctionType and not (code.__module__ or "").startswith("torch.")


def operands(fn: Callable[..., Any], args: Args) -> tuple[Any, ...]:
    """Return the positional arguments of a call without ``Scalar`` objects."""
    if not any(map(_holds, args)):
        return args
    examples = tuple(v.example if type(v) is Scalar else v for v in args)
    within = _index if fn in _INDEXING else _constant
    return tuple(
        value.item() if type(value) is Scalar and takes_number(fn, examples, place) else within(value)
        for place, value in enumerate(args)
    )


def _index(value: object) -> Any:
    """Convert integers in indices and slices to plain numbers."""
    if type(value) is Scalar and isinstance(value.example, np.integer):
        return value.item()
    return _rebuilt(value, _index)


def _constant(value: object) -> Any:
    return _rebuilt(value, _constant)


def _rebuilt(value: Any, each: Callable[[Any], Any]) -> Any:
    if type(value) is Scalar:
        return value.settle()
    if not _holds(value):
        return value
    if type(value) is dict:
        return {name: each(item) for name, item in value.items()}
    if type(value) is slice:
        return slice(each(value.start), each(value.stop), each(value.step))
    return type(value)(each(item) for item in value)


def _holds(value: Any) -> bool:
    """Whether a value contains a ``Scalar``."""
    if type(value) in (list, tuple, torch.Size):
        return any(map(_holds, value))
    if type(value) is dict:
        return any(map(_holds, value.values()))
    if type(value) is slice:
        return any(map(_holds, (value.start, value.stop, value.step)))
    return type(value) is Scalar
