"""Convert host numbers to kernel arguments on a GPU: the bits of a 64-bit number in a 64-bit integer."""

from __future__ import annotations

import struct

import torch

_HALF = 1 << 63
_DOUBLE, _INTEGER = struct.Struct("<d"), struct.Struct("<q")


def number_bits(value: float) -> int:
    """Return the bits of ``value`` in double precision, as a signed integer."""
    found: int = _INTEGER.unpack(_DOUBLE.pack(value))[0]
    return found


def tensor_bits(tensor: torch.Tensor) -> int:
    """Return the bits of the CPU ``tensor``'s single element: as a double if floating, else as an integer."""
    value = tensor.item()
    if tensor.dtype.is_floating_point:
        return number_bits(value)
    return (int(value) + _HALF) % (2 * _HALF) - _HALF
