"""Check host numbers, and convert them to kernel arguments on a GPU: 64-bit numbers as 64-bit integers."""

from __future__ import annotations

import struct

import torch

_HALF = 1 << 63
_DOUBLE, _INTEGER = struct.Struct("<d"), struct.Struct("<q")


MAX_INT64 = _HALF - 1


def word(value: int) -> int:
    """Return ``value`` if it fits into the signed 64-bit integer that kernels read.

    Raises:
        OverflowError: ``value`` needs more bits. Eager may compute with it.
    """
    if not -_HALF <= value < _HALF:
        raise OverflowError("int too big to convert")
    return value


def number_bits(value: float) -> int:
    """Return the 64 bits of ``value`` as a double, read as a signed integer: GPU kernels take it by value."""
    bits: int = _INTEGER.unpack(_DOUBLE.pack(value))[0]
    return bits


def tensor_bits(tensor: torch.Tensor) -> int:
    """Return the bits of the CPU ``tensor``'s single element: as a double if floating, else as an integer."""
    value = tensor.item()
    if tensor.dtype.is_floating_point:
        return number_bits(value)
    return (int(value) + _HALF) % (2 * _HALF) - _HALF
