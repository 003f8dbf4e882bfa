"""``Tensor.fill_diagonal_`` of symbolic sizes, because torch's composite kernel requires plain sizes.

The rule fills a view of the diagonal. torch's kernel handles a diagonal that wraps around (``wrap`` in a tall
matrix).
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch

from fxstack_capture.torch_side.fakes.writes import is_leaf
from fxstack_capture.torch_side.recording.protocol import TracerProtocol

# Limits: ``fill_diagonal_(wrap=True)`` of a tall matrix with symbolic sizes breaks the graph.

_NOTHING: dict[str, Any] = {}


def fill(
    tracer: TracerProtocol, fn: Callable[..., Any], args: tuple[Any, ...], kwargs: dict[str, Any]
) -> Any:
    """Apply the rule for ``Tensor.fill_diagonal_``."""
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
