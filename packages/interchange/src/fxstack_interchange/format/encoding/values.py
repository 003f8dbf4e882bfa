"""Descriptions of the values of nodes (``meta["val"]``), and fake values made from descriptions."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

import torch

from fxstack_interchange import torch_compat
from fxstack_interchange.format.errors import LoadError, SaveError
from fxstack_interchange.format.expressions import to_text
from fxstack_interchange.format.symbols import SymbolTable
from fxstack_interchange.torch_compat import FakeTensor, FunctionalTensor

_PLAIN_TENSORS = (torch.Tensor, torch.nn.Parameter, torch.nn.Buffer, FakeTensor, FunctionalTensor)
MAX_DIMENSIONS = 64


def describe(value: object) -> Any:
    """Return the JSON description of a fake tensor, a symbolic or plain number, or a container of these.

    Raises:
        SaveError: the format has no description for the value's type.
    """
    if value is None or isinstance(value, bool | str):
        return value
    if isinstance(value, torch.Tensor):
        return {"tensor": describe_tensor(value)}
    if isinstance(value, torch.SymInt | torch.SymFloat | torch.SymBool):
        return {_SYMBOLIC_TAGS[type(value)]: to_text(value.node.expr)}
    if isinstance(value, int):
        return int(value)
    if isinstance(value, float):
        # JSON has neither NaN nor infinities.
        return {"float": repr(value)}
    if isinstance(value, tuple):
        return {"tuple": [describe(item) for item in value]}
    if isinstance(value, list):
        return {"list": [describe(item) for item in value]}
    if isinstance(value, Mapping):
        return {"dict": [[describe(k), describe(v)] for k, v in value.items()]}
    raise SaveError(f"a value of type {type(value).__qualname__} has no description in the format")


_SYMBOLIC_TAGS = {torch.SymInt: "symint", torch.SymFloat: "symfloat", torch.SymBool: "symbool"}


def describe_tensor(value: torch.Tensor) -> dict[str, Any]:
    """Return dtype, shape, stride, offset, device and requires_grad of a strided tensor."""
    if not isinstance(value, _PLAIN_TENSORS) or type(value) not in _PLAIN_TENSORS:
        raise SaveError(f"a {type(value).__qualname__} cannot be described: flatten tensor subclasses first")
    if value.layout is not torch.strided:
        raise SaveError(f"a tensor of layout {value.layout} cannot be described; only strided ones can")
    record: dict[str, Any] = {
        "dtype": dtype_name(value.dtype),
        "shape": [size_text(size) for size in value.shape],
        "stride": [size_text(size) for size in value.stride()],
        "offset": size_text(value.storage_offset()),
        "device": str(value.device),
        "requires_grad": bool(value.requires_grad),
    }
    if value.is_conj():
        record["conj"] = True
    if value.is_neg():
        record["neg"] = True
    return record


def dtype_name(dtype: torch.dtype) -> str:
    return str(dtype).removeprefix("torch.")


def size_text(size: Any) -> int | str:
    """Return a size in the form that files hold: an integer, or a text in the notation of ``expressions.to_text``."""
    if isinstance(size, torch.SymInt):
        expr = size.node.expr
        return int(expr) if expr.is_Integer else to_text(expr)
    return int(size)


def rebuild(record: object, table: SymbolTable) -> Any:
    """Make the value that ``record`` describes. Its tensors are fake.

    Raises:
        LoadError: the description is malformed.
    """
    if record is None or isinstance(record, bool | int | str):
        return record
    if not isinstance(record, dict) or len(record) != 1:
        raise LoadError(f"malformed value description {record!r:.100}")
    ((tag, content),) = record.items()
    if tag not in _REBUILDERS:
        raise LoadError(f"unknown kind of value {tag!r}")
    return _REBUILDERS[tag](content, table)


def rebuild_tensor(record: Any, table: SymbolTable) -> torch.Tensor:
    """Make a fake tensor with the described sizes, strides and offset, without allocating its data."""
    if not isinstance(record, dict):
        raise LoadError(f"malformed tensor description {record!r:.100}")
    shape = [_size(size, table) for size in _sizes(record, "shape")]
    stride = [_size(size, table) for size in _sizes(record, "stride")]
    if len(shape) != len(stride):
        raise LoadError(f"a tensor of {len(shape)} dimensions has {len(stride)} strides")
    offset = _size(record.get("offset", 0), table)
    dtype, device = parse_dtype(record.get("dtype")), parse_device(record.get("device"))
    requires_grad = record.get("requires_grad") is True
    try:
        meta = _meta_tensor(shape, stride, offset, dtype)
        meta = meta.conj() if record.get("conj") else meta
        meta = torch_compat.neg_view(meta) if record.get("neg") else meta
        meta = meta.requires_grad_() if requires_grad else meta
        return FakeTensor(table.fake_mode, meta, device)
    except (RuntimeError, TypeError) as error:
        raise LoadError(f"a tensor of shape {shape} and stride {stride} is impossible: {error}") from error


def _meta_tensor(shape: list[Any], stride: list[Any], offset: Any, dtype: torch.dtype) -> torch.Tensor:
    """Return a tensor without data that has the given strides and offset, as the base of a fake tensor."""
    if isinstance(offset, int) and offset == 0:
        return torch.empty_strided(shape, stride, dtype=dtype, device="meta")
    # ``empty_strided`` has no offset, so the tensor becomes a view of enough memory.
    span = offset + 1
    for size, step in zip(shape, stride, strict=True):
        span = span + (size - 1) * step
    return torch.empty(span, dtype=dtype, device="meta").as_strided(shape, stride, offset)


def _sizes(record: dict[str, Any], key: str) -> list[Any]:
    """Return the list under ``key`` of a tensor's record. Raise LoadError if it is no list, or too long."""
    sizes = record.get(key)
    if not isinstance(sizes, list) or len(sizes) > MAX_DIMENSIONS:
        raise LoadError(f"a tensor's {key} must be a list of at most {MAX_DIMENSIONS} sizes")
    return sizes


def _size(value: object, table: SymbolTable) -> Any:
    """Return a size from a file: an integer, or the symbolic number for an expression."""
    if isinstance(value, int) and not isinstance(value, bool):
        if not 0 <= value < 2**62:
            raise LoadError(f"impossible size {value}")
        return value
    return table.integer(value)


def parse_dtype(name: object) -> torch.dtype:
    """Return the dtype that ``dtype_name`` named.

    Raises:
        LoadError: torch has no such dtype.
    """
    dtype = getattr(torch, name, None) if isinstance(name, str) else None
    if not isinstance(dtype, torch.dtype):
        raise LoadError(f"unknown dtype {name!r:.100}")
    return dtype


def parse_device(name: object) -> torch.device:
    """Return the device with this name, for example ``cuda:0``. Raise LoadError for an unknown name."""
    try:
        return torch.device(str(name))
    except RuntimeError as error:
        raise LoadError(f"unknown device {name!r:.100}") from error


def parse_float(text: object) -> float:
    """Return the number in a text, for example ``0.5`` or ``inf``. Raise LoadError for a malformed text."""
    try:
        value = float(str(text))
    except ValueError as error:
        raise LoadError(f"malformed float {text!r:.100}") from error
    # A text such as "1e999" is infinite, although it is not "inf".
    is_word = str(text) in ("nan", "inf", "-inf")
    if not is_word and not math.isfinite(value):
        raise LoadError(f"malformed float {text!r:.100}")
    return value


def _items(content: object, table: SymbolTable) -> list[Any]:
    """Return the values of an encoded list, for a list or tuple among the metadata."""
    if not isinstance(content, list):
        raise LoadError("a nested value must be a list")
    return [rebuild(item, table) for item in content]


def _dict(content: object, table: SymbolTable) -> dict[Any, Any]:
    """Return a dict from a list of pairs of encoded keys and values."""
    if not isinstance(content, list) or not all(isinstance(p, list) and len(p) == 2 for p in content):
        raise LoadError("a dict must be a list of pairs")
    return {_key(k, table): rebuild(v, table) for k, v in content}


def _key(record: object, table: SymbolTable) -> Any:
    """Return a key of a dict. Raise LoadError if it has a type that no key may have."""
    key = rebuild(record, table)
    if not isinstance(key, str | int | float | tuple | None):
        raise LoadError(f"a dict cannot have the key {key!r:.100}")
    return key


_REBUILDERS: dict[str, Any] = {
    "tensor": rebuild_tensor,
    "symint": lambda content, table: table.integer(content),
    "symfloat": lambda content, table: table.floating(content),
    "symbool": lambda content, table: table.boolean(content),
    "float": lambda content, _table: parse_float(content),
    "tuple": lambda content, table: tuple(_items(content, table)),
    "list": _items,
    "dict": _dict,
}
