"""Convert NumPy arrays and scalars that index a tensor, as torch converts them.

An array of integers or fractions becomes an int64 tensor. A mask (``bool`` or ``uint8``) keeps its dtype. A
scalar, and an integer array without dimensions, becomes a Python number. A scalar in a list becomes a Python
number, too.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import torch

from fxstack_capture.numpy_side.array import Array
from fxstack_capture.torch_side.recording.protocol import TracerProtocol

_MASKS = frozenset({torch.bool, torch.uint8})


def plain(tracer: TracerProtocol, index: object) -> Any:
    """Return ``index`` without NumPy objects, if torch accepts the objects as indices."""
    if type(index) is tuple:
        return tuple([_item(tracer, item) for item in index])
    return _item(tracer, index)


def _item(tracer: TracerProtocol, item: Any) -> Any:
    """Return one part of an index without NumPy objects."""
    kind = type(item)
    if kind is Array:
        return _tensor(tracer, item)
    if kind is slice:
        return slice(_number(item.start), _number(item.stop), _number(item.step))
    if kind is list:
        return [value if type(value) is np.uint8 else _number(value) for value in item]
    return _number(item)


def _number(value: object) -> Any:
    """Return a NumPy integer as an int, because a node cannot hold it, and any other value unchanged."""
    return int(value) if isinstance(value, np.integer) else value


def _tensor(tracer: TracerProtocol, array: Array) -> Any:
    """Return the index tensor of an array, or the array itself if torch raises an error for the array."""
    dtype = array.example.dtype
    if dtype.kind == "c" or (array.example.ndim == 0 and dtype.kind not in "iu"):
        return array
    tensor = array.tensor
    if tensor.dtype in _MASKS and array.example.ndim > 0:
        return tensor
    if tensor.dtype == torch.int64:
        return tensor
    return tracer.record(torch.Tensor.to, (tensor, torch.int64), {})
