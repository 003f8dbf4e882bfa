"""The tensors that a graph holds: safetensors stores their bytes, JSON stores their properties.

Each constant is stored as the one-dimensional window of its storage that it covers, so that its strides are
preserved. Gaps between its elements are stored as zeros, never as the bytes that lie in memory there.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import torch
from safetensors import SafetensorError
from safetensors.torch import load as load_safetensors
from safetensors.torch import save as save_safetensors

from fxstack_interchange.format.encoding.values import dtype_name, parse_device, parse_dtype
from fxstack_interchange.format.errors import LoadError, SaveError
from fxstack_interchange.torch_compat import FakeTensor

_BYTES = {1: torch.uint8, 2: torch.int16, 4: torch.int32, 8: torch.int64}


@dataclass
class ConstantWriter:
    """Collects the constants of one file. A tensor that occurs twice is stored once."""

    records: dict[str, dict[str, Any]] = field(default_factory=dict)
    """The record of each constant in the document, by key."""
    windows: dict[str, torch.Tensor] = field(default_factory=dict)
    """The memory of each constant, by key."""
    _seen: dict[int, tuple[str, torch.Tensor]] = field(default_factory=dict)

    def add(self, tensor: torch.Tensor) -> str:
        """Add ``tensor`` and return its key.

        Raises:
            SaveError: ``tensor`` has no data, or a layout or type that the format does not store.
        """
        if id(tensor) in self._seen:
            return self._seen[id(tensor)][0]
        _check(tensor)
        key = f"t{len(self.records)}"
        size, stride = tuple(tensor.shape), tuple(tensor.stride())
        plain = tensor.detach().resolve_conj().resolve_neg().cpu()
        if _overlaps(size, stride):
            plain = plain.contiguous()
            stride = tuple(plain.stride())
        self.windows[key] = _window(plain, size, stride)
        self.records[key] = {
            "dtype": dtype_name(tensor.dtype),
            "shape": list(size),
            "stride": list(stride),
            "device": str(tensor.device),
            "requires_grad": bool(tensor.requires_grad),
            "parameter": isinstance(tensor, torch.nn.Parameter),
        }
        self._seen[id(tensor)] = (key, tensor)
        return key

    def data(self) -> bytes:
        """Return the bytes of the safetensors member."""
        return bytes(save_safetensors(self.windows))


def _check(tensor: torch.Tensor) -> None:
    """Raise SaveError for a tensor that cannot be a constant of a file: without data, of a subclass, or not strided."""
    if isinstance(tensor, FakeTensor) or tensor.device.type == "meta":
        raise SaveError("a constant without data (a fake or meta tensor) cannot be saved")
    if type(tensor) not in (torch.Tensor, torch.nn.Parameter, torch.nn.Buffer):
        raise SaveError(f"a constant of type {type(tensor).__qualname__} cannot be saved; flatten it first")
    if tensor.layout is not torch.strided or tensor.is_quantized:
        raise SaveError(f"a constant of layout {tensor.layout} and dtype {tensor.dtype} cannot be saved")


def _overlaps(size: tuple[int, ...], stride: tuple[int, ...]) -> bool:
    """Whether two indices may refer to the same element.

    Dimensions of stride 0 do not count, because a file can keep this stride.
    """
    reach = 1
    for length, step in sorted(zip(size, stride, strict=True), key=lambda pair: pair[1]):
        if length > 1 and step != 0:
            if step < reach:
                return True
            reach = step * (length - 1) + reach
    return False


def _window(tensor: torch.Tensor, size: tuple[int, ...], stride: tuple[int, ...]) -> torch.Tensor:
    """Return the memory between the first and the last element of a tensor, as flat integers for the file.

    Memory between the elements is zero.
    """
    window = torch.zeros(_span(size, stride), dtype=tensor.dtype)
    if tensor.numel():
        single = tuple(1 if step == 0 else length for length, step in zip(size, stride, strict=True))
        source = tensor
        for axis, (length, step) in enumerate(zip(size, stride, strict=True)):
            source = source.narrow(axis, 0, 1) if step == 0 and length > 1 else source
        window.as_strided(single, stride).copy_(source)
    return _as_integers(window)


def _as_integers(window: torch.Tensor) -> torch.Tensor:
    """Return the same bytes as integers. Every version of safetensors stores integers."""
    width = window.element_size()
    return window.view(_BYTES[width]) if width in _BYTES else window.view(torch.int64)


def _span(size: tuple[int, ...], stride: tuple[int, ...]) -> int:
    """Return the number of elements of memory that a tensor of this size and stride covers."""
    if 0 in size:
        return 0
    return 1 + sum((length - 1) * step for length, step in zip(size, stride, strict=True))


def read_constants(records: dict[str, Any], data: bytes, map_location: str | None) -> dict[str, torch.Tensor]:
    """Return the constants of a file by key.

    Raises:
        LoadError: descriptions and data do not correspond, or a device is not available.
    """
    try:
        windows = load_safetensors(data)
    except SafetensorError as error:
        raise LoadError(f"the file's constants are damaged: {error}") from error
    if windows.keys() != records.keys():
        odd = sorted(windows.keys() ^ records.keys())
        raise LoadError(f"constants described and constants stored differ: {odd[:5]}")
    return {key: _restore(key, records[key], windows[key], map_location) for key in records}


def _restore(
    key: str, record: dict[str, Any], stored: torch.Tensor, map_location: str | None
) -> torch.Tensor:
    """Return a constant from its record in the document and its stored bytes. ``key``: its name, for errors."""
    dtype = parse_dtype(record["dtype"])
    size, stride = tuple(record["shape"]), tuple(record["stride"])
    if len(size) != len(stride):
        raise LoadError(f"constant {key!r} has {len(size)} dimensions and {len(stride)} strides")
    expected = _span(size, stride) * dtype.itemsize
    if stored.numel() * stored.element_size() != expected or stored.dim() != 1:
        raise LoadError(
            f"constant {key!r}: {stored.numel() * stored.element_size()} bytes are stored, "
            f"shape {size} and stride {stride} need {expected}"
        )
    tensor = stored.view(dtype).as_strided(size, stride)
    tensor = _place(key, tensor, map_location or record["device"])
    if record["parameter"]:
        return torch.nn.Parameter(tensor, requires_grad=record["requires_grad"])
    return tensor.requires_grad_() if record["requires_grad"] else tensor


def _place(key: str, tensor: torch.Tensor, device: object) -> torch.Tensor:
    """Move a constant to its device. Raise LoadError if this machine has no such device."""
    try:
        return tensor.to(parse_device(device))
    except (RuntimeError, AssertionError) as error:
        raise LoadError(
            f"constant {key!r} belongs on {device}, which is not available; pass map_location='cpu'"
        ) from error
