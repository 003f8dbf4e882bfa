"""``min`` and ``max`` of two floats that only the running graph knows: no branch, a selection in the graph."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import torch

if TYPE_CHECKING:
    from collections.abc import Callable

    from fxstack_capture.torch_side.tracer import TorchTracer

_COMPARE: dict[Any, Any] = {max: torch.gt, min: torch.lt}


def extremum(tracer: TorchTracer, fn: Callable[..., Any], first: Any, second: Any) -> Any:
    """Python's answer: the second where it compares as larger (smaller), else the first, NaN or not.

    In double precision, which Python computes in. Numbers that are known while tracing are compared by Python.
    """
    if not (_is_float(first) and _is_float(second) and (_is_open(first) or _is_open(second))):
        return fn(first, second)
    pair = [_as_tensor(tracer, number) for number in (first, second)]
    better = tracer.record(_COMPARE[fn], (pair[1], pair[0]), {})
    chosen = tracer.record(torch.where, (better, pair[1], pair[0]), {})
    return tracer.number_in(chosen)


def _is_float(number: Any) -> bool:
    return type(number) in (float, torch.SymFloat)


def _is_open(number: Any) -> bool:
    return type(number) is torch.SymFloat and not number.node.has_hint()


def _as_tensor(tracer: TorchTracer, number: Any) -> torch.Tensor:
    options = {"dtype": torch.float64, "device": torch.device("cpu")}
    return tracer.record(torch.scalar_tensor, (number,), options)  # type: ignore[no-any-return]
