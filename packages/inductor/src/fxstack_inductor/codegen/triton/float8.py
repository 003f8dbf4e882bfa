"""Convert 8-bit floats with torch's own results (``c10/util/Float8_e4m3fn.h``, ``Float8_e5m2.h``).

A too large number becomes NaN or the largest number (e4m3fn; torch 2.13 changed it) or infinity (e5m2). The
hardware's conversion instruction would give the largest number, and some GPUs lack it. In memory, 8-bit
floats are bytes.
"""

from __future__ import annotations

import torch

from fxstack_inductor.tiling.kernels import FLOAT8_NAMES

_BEYOND = torch.full((1,), 1e4, device="cpu").to(torch.float8_e4m3fn)
LARGEST = 0x7F if bool(_BEYOND.float().isnan()) else 0x7E
"""The byte that this torch stores for numbers beyond the range of e4m3fn."""


def load(text: str, dtype: torch.dtype) -> str:
    """Return Triton text that converts the bytes ``text`` to float32."""
    return f"_from_{FLOAT8_NAMES[dtype]}({text})"


def store(text: str, dtype: torch.dtype) -> str:
    """Return Triton text that converts the float32 values ``text`` to bytes."""
    return f"_to_{FLOAT8_NAMES[dtype]}({text})"


def rounded(dtype: torch.dtype) -> str:
    """Return the Triton format (``{0}``: a float32) that rounds as a store and a load would."""
    return load(store("{0}", dtype), dtype)


_FROM = """

@triton.jit
def _from_e4m3fn(byte):
    bits = byte.to(tl.int32)
    size = bits & 0x7F
    normal = ((size << 20) + (120 << 23)).to(tl.float32, bitcast=True)
    value = tl.where(size < 8, size.to(tl.float32) * 0.001953125, normal)
    value = tl.where(size == 0x7F, float("nan"), value)
    sign = (bits & 0x80) << 24
    return (value.to(tl.int32, bitcast=True) | sign).to(tl.float32, bitcast=True)


@triton.jit
def _from_e5m2(byte):
    return (byte.to(tl.int16) << 8).to(tl.float16, bitcast=True).to(tl.float32)

"""


def _rounding(name: str, cut: int, lowest: int, largest: int, beyond: str) -> str:
    """Return Triton text of a function from float32 to bytes that rounds the last ``cut`` bits to even.

    ``lowest`` is float32's exponent field of the least normal number, minus one. Smaller numbers are rounded
    by adding 2**23 times the least number. Numbers of at least ``beyond`` become ``largest``.
    """
    magic = lowest + cut - 126
    return f"""

@triton.jit
def _to_{name}(value):
    bits = value.to(tl.int32, bitcast=True)
    size = bits & 0x7FFFFFFF
    small = size.to(tl.float32, bitcast=True) + {2.0**magic}
    small = small.to(tl.int32, bitcast=True) - ({127 + magic} << 23)
    normal = (size - ({lowest} << 23) + {(1 << (cut - 1)) - 1:#x} + ((size >> {cut}) & 1)) >> {cut}
    byte = tl.where(size < ({lowest + 1} << 23), small, tl.minimum(normal, {largest:#x}))
    large = tl.where(size > (255 << 23), 0x7F, {largest:#x})
    byte = tl.where(size >= {beyond}, large, byte)
    return (byte | ((bits >> 24) & 0x80)).to(tl.uint8)
"""


PRELUDE = (
    _FROM
    + _rounding("e4m3fn", 20, 120, LARGEST, "(1087 << 20)")
    + _rounding("e5m2", 21, 112, 0x7C, "(143 << 23)")
)
