"""``min`` and ``max`` of tensors of one element: the graph selects without a branch.

Python returns one of the objects. The graph computes a new tensor of the same value. That is another object
than the one that Python returns, it is a tensor where Python returns a number, and where Python leaves a
gradient unset, the gradient is zero. Therefore the rule is for ``fullgraph=True`` only, where the alternative is
an error: torch.compile computes such a tensor, too. Anything else that may differ breaks the graph: other
dtypes, numbers that the tensor cannot hold, and later writes to the operands or to the result.
"""

from __future__ import annotations

import operator
from collections.abc import Callable
from typing import Any

import torch

from fxstack_capture.torch_compat import FakeTensor
from fxstack_capture.torch_side.recording.protocol import TracerProtocol

_BETTER: dict[Any, Callable[..., Any]] = {max: operator.gt, min: operator.lt}
_INTEGERS = (int, torch.SymInt)
_REAL = (*_INTEGERS, float, torch.SymFloat)


def _takes(tracer: TracerProtocol, first: object, second: object) -> bool:
    """Whether the graph can select from the two operands."""
    tensors = [value for value in (first, second) if isinstance(value, torch.Tensor)]
    if not tracer.trace.options.fullgraph or not all(_is_plain(tracer, tensor) for tensor in tensors):
        return False
    if len(tensors) == 1:
        number = second if first is tensors[0] else first
        alone: bool = tensors[0].dim() == 0
        return alone and _holds(tensors[0].dtype, number)
    return len(tensors) == 2 and _look_alike(*tensors)


def _is_plain(tracer: TracerProtocol, tensor: torch.Tensor) -> bool:
    shown: bool = tracer.python_type(tensor) in (torch.Tensor, torch.nn.Parameter)
    sizes = all(type(size) is int and size == 1 for size in tensor.shape)
    return shown and type(tensor) is FakeTensor and sizes and not tensor.dtype.is_complex


def _look_alike(first: torch.Tensor, second: torch.Tensor) -> bool:
    same: bool = first.shape == second.shape and first.dtype == second.dtype
    return same and first.device == second.device and first.layout == second.layout


def _holds(dtype: torch.dtype, number: object) -> bool:
    """Whether a tensor of ``dtype`` can stand for the number in the operators that follow."""
    if dtype is torch.bool:
        return type(number) is bool
    if dtype.is_floating_point:
        return type(number) in _REAL and dtype.itemsize > 1
    limits = torch.iinfo(dtype)
    return type(number) is int and limits.min <= number <= limits.max


def extremum(tracer: TracerProtocol, fn: Callable[..., Any], first: object, second: object) -> Any:
    """Return a tensor of the value of ``second`` if that is better than ``first``, else of ``first``.

    Return ``NotImplemented`` if the graph cannot select from the two.
    """
    if not _takes(tracer, first, second):
        return NotImplemented
    better = tracer.trace.calls.call(_BETTER[fn], (second, first), {})
    chosen = tracer.record(torch.where, (better, second, first), {})
    for value in (first, second, chosen):
        if isinstance(value, torch.Tensor):
            text = f"a write to an operand or a result of {fn.__name__}"
            tracer.unwritable[value.untyped_storage()._cdata] = text
    return chosen
