"""``batch_norm`` with an unbacked symbol as momentum.

``BatchNorm2d(momentum=None)`` computes such a momentum: one divided by the number of batches. The operator
accepts no symbolic momentum. The rule passes new statistics to the operator, with momentum 1, so that the
operator writes the statistics of the batch into them. Arithmetic operators then blend the batch statistics
into the running statistics.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch

from fxstack_capture.torch_side.recording.protocol import TracerProtocol

_MOMENTUM = 6
"""The position of ``momentum``: input, weight, bias, running_mean, running_var, training,
momentum, eps, ...
"""


def batch_norm(
    tracer: TracerProtocol, fn: Callable[..., Any], args: tuple[Any, ...], kwargs: dict[str, Any]
) -> Any:
    momentum: Any = args[_MOMENTUM] if len(args) > _MOMENTUM else None
    if type(momentum) is not torch.SymFloat or momentum.node.has_hint():
        return tracer.record(fn, args, kwargs)
    data, weight, bias, *running, training = args[:_MOMENTUM]
    if not training or None in running:  # the operator does not use the momentum
        return tracer.record(fn, (*args[:_MOMENTUM], 0.0, *args[_MOMENTUM + 1 :]), kwargs)
    batch = [tracer.record(torch.zeros_like, (statistic,), {}) for statistic in running]
    given = (data, weight, bias, *batch, training, 1.0, *args[_MOMENTUM + 1 :])
    result = tracer.record(fn, given, kwargs)
    for statistic, new in zip(running, batch, strict=True):
        tracer.record(torch.Tensor.mul_, (statistic, 1 - momentum), {})
        tracer.record(torch.Tensor.add_, (statistic, new), {"alpha": momentum})
    return result
