"""Rules for NumPy arrays and scalars, which share the memory of a graph output."""

from __future__ import annotations

import ast
from typing import Any

import numpy as np
import torch

from fxstack_capture.emit.errors import CannotRebuildError
from fxstack_capture.emit.rebuild.containers import called
from fxstack_capture.emit.rebuild.rebuilder import Rebuilder, Rule
from fxstack_capture.numpy_side.array import Array
from fxstack_capture.numpy_side.scalar import Scalar
from fxstack_capture.trace.numpy_types import CONSTANT_TYPES


def _as_scalar(tensor: torch.Tensor) -> Any:
    return tensor.numpy()[()]


def _as_read_only(tensor: torch.Tensor) -> Any:
    array = tensor.numpy()
    array.flags.writeable = False
    return array


def rebuild(rebuilder: Rebuilder, obj: Array) -> ast.expr:
    """Rebuild an array. Raises CannotRebuildError if the trace has a copy where NumPy has a view."""
    # NumPy has a view in place of the copy: a write to the copy would not reach the base.
    if obj.copied_at is not None:
        raise CannotRebuildError("a NumPy view that no tensor can represent", obj.copied_at)
    if isinstance(obj.example, np.generic):
        convert: Any = _as_scalar
    else:
        convert = torch.Tensor.numpy if obj.example.flags.writeable else _as_read_only
    return called(rebuilder, convert, rebuilder.expr(obj.tensor), hint="array")


def scalar(rebuilder: Rebuilder, obj: Scalar) -> ast.expr:
    """One that was computed of others."""
    return called(rebuilder, type(obj.example), rebuilder.expr(obj.item()))


def storage(rebuilder: Rebuilder, obj: torch.UntypedStorage) -> ast.expr:
    """Rebuild the storage of a tensor."""
    tensor = rebuilder.trace.torch.storages.tensor_of(obj)
    if tensor is None:
        raise CannotRebuildError("a storage")
    return called(rebuilder, torch.Tensor.untyped_storage, rebuilder.expr(tensor), hint="storage")


def constant(rebuilder: Rebuilder, obj: object) -> ast.expr:
    return rebuilder.constant(obj, type(obj).__name__)


RULES: dict[type, Rule] = {
    Array: rebuild,
    Scalar: scalar,
    torch.UntypedStorage: storage,
    **dict.fromkeys(CONSTANT_TYPES | {np.finfo, np.iinfo, np.ufunc, type(np.sum)}, constant),
}
