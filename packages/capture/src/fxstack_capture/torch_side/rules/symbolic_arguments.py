"""Operators whose kernels require plain numbers, as operators that accept symbolic numbers."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch

from fxstack_capture.torch_side.fakes.writes import is_leaf
from fxstack_capture.torch_side.recording.protocol import TracerProtocol
from fxstack_capture.trace.state import Args, Kwargs

# Limits: ``fill_diagonal_(wrap=True)`` of a tall matrix with symbolic sizes breaks the graph.

_NOTHING: dict[str, Any] = {}


def fill_diagonal(tracer: TracerProtocol, fn: Callable[..., Any], args: Args, kwargs: Kwargs) -> Any:
    """Apply the rule for ``Tensor.fill_diagonal_``: fill a view of the diagonal.

    torch's kernel handles a diagonal that wraps around (``wrap`` in a tall matrix).
    """
    plain = _plain(*args, **kwargs) if len(args) <= 3 and kwargs.keys() <= _NAMES else None
    if plain is None:
        return tracer.record(fn, args, kwargs)
    tensor, value = plain
    diagonal = tracer.record(torch.diagonal, (tensor, 0, 0, 1), _NOTHING)
    for _ in range(tensor.dim() - 2):
        diagonal = tracer.record(torch.diagonal, (diagonal, 0, 0, -1), _NOTHING)
    tracer.record(torch.Tensor.fill_, (diagonal, value), _NOTHING)
    return tensor


_NAMES = frozenset({"fill_value", "wrap"})


def _plain(
    tensor: torch.Tensor, fill_value: object = None, wrap: object = False
) -> tuple[torch.Tensor, Any] | None:
    """Return the tensor and the number if a view covers the whole diagonal, else ``None``."""
    numbers = (int, float, bool, torch.SymInt, torch.SymFloat)
    if not tensor._has_symbolic_sizes_strides or type(fill_value) not in numbers:
        return None
    if tensor.dim() < 2 or type(wrap) is not bool or (tensor.requires_grad and is_leaf(tensor) is not False):
        return None
    height, *others = tensor.shape
    if len(others) > 1:
        return (tensor, fill_value) if all(size == height for size in others) else None
    return None if wrap and height > others[0] + 1 else (tensor, fill_value)


_MOMENTUM = 6
"""The position of ``momentum``: input, weight, bias, running_mean, running_var, training,
momentum, eps, ...
"""


def batch_norm(tracer: TracerProtocol, fn: Callable[..., Any], args: Args, kwargs: Kwargs) -> Any:
    """Apply the rule for ``torch.batch_norm`` with an unbacked symbol as momentum.

    ``BatchNorm2d(momentum=None)`` computes such a momentum: one divided by the number of batches. The rule passes new
    statistics to the operator, with momentum 1, so that the operator writes the statistics of the batch into them.
    Arithmetic operators then blend the batch statistics into the running statistics.
    """
    momentum: Any = args[_MOMENTUM] if len(args) > _MOMENTUM else None
    if type(momentum) is not torch.SymFloat or momentum.node.has_hint():
        return tracer.record(fn, args, kwargs)
    data, weight, bias, *running, training = args[:_MOMENTUM]
    if not training or None in running:  # the operator does not use the momentum
        return tracer.record(fn, (*args[:_MOMENTUM], 0.0, *args[_MOMENTUM + 1 :]), kwargs)
    batch = [tracer.record(torch.zeros_like, (statistic,), {}) for statistic in running]
    arguments = (data, weight, bias, *batch, training, 1.0, *args[_MOMENTUM + 1 :])
    result = tracer.record(fn, arguments, kwargs)
    for statistic, new in zip(running, batch, strict=True):
        tracer.record(torch.Tensor.mul_, (statistic, 1 - momentum), {})
        tracer.record(torch.Tensor.add_, (statistic, new), {"alpha": momentum})
    return result
