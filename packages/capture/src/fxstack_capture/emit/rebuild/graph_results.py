"""Rules for objects made of graph outputs: NumPy arrays and scalars, storages, and printed texts.

A printed text is a string that the program only prints. Replacement code formats it as an f-string.
"""

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
from fxstack_capture.objects.printed_texts import LaterString, Piece, Text
from fxstack_capture.trace.numpy_types import CONSTANT_TYPES


def _as_scalar(tensor: torch.Tensor) -> Any:
    """Return the NumPy scalar for a 0-d tensor of the graph. The replacement calls this function."""
    return tensor.numpy()[()]


def _as_read_only(tensor: torch.Tensor) -> Any:
    """Return a read-only array that shares the memory of a tensor of the graph. The replacement calls this
    function.
    """
    array = tensor.numpy()
    array.flags.writeable = False
    return array


def rebuild(rebuilder: Rebuilder, obj: Array) -> ast.expr:
    """Rebuild an ``Array`` as NumPy array or scalar.

    Raises CannotRebuildError if the tensor is a copy where NumPy returns a view.
    """
    # NumPy's result is a view of the base. A write to the copy would not change the base.
    if obj.copied_at is not None:
        raise CannotRebuildError("a NumPy view that no tensor can represent", obj.copied_at)
    if isinstance(obj.example, np.generic):
        convert: Any = _as_scalar
    else:
        convert = torch.Tensor.numpy if obj.example.flags.writeable else _as_read_only
    return called(rebuilder, convert, rebuilder.expr(obj.tensor), hint="array")


def scalar(rebuilder: Rebuilder, obj: Scalar) -> ast.expr:
    """Rebuild a NumPy scalar that the trace computed. (A scalar from outside is loaded from its source
    instead.)
    """
    return called(rebuilder, type(obj.example), rebuilder.expr(obj.item()))


def storage(rebuilder: Rebuilder, obj: torch.UntypedStorage) -> ast.expr:
    """Rebuild a storage. Raises CannotRebuildError if no tensor of the trace has the storage."""
    tensor = rebuilder.trace.torch.storages.tensor_of(obj)
    if tensor is None:
        raise CannotRebuildError("a storage")
    return called(rebuilder, torch.Tensor.untyped_storage, rebuilder.expr(tensor), hint="storage")


def constant(rebuilder: Rebuilder, obj: object) -> ast.expr:
    """Rebuild a NumPy object that needs no graph, such as a dtype or a ufunc, as a constant."""
    return rebuilder.constant(obj, type(obj).__name__)


def _piece(rebuilder: Rebuilder, piece: Piece) -> ast.expr:
    """Return the f-string field of a piece of text: value, conversion and format specification."""
    form = ast.JoinedStr([ast.Constant(piece.spec)]) if piece.spec else None
    conversion = ord(piece.conversion) if piece.conversion else -1
    return ast.FormattedValue(rebuilder.expr(piece.value), conversion, form)


def text(rebuilder: Rebuilder, obj: Text) -> ast.expr:
    """Rebuild a printed text as an f-string."""
    parts: list[ast.expr] = []
    for part in obj.parts:
        if isinstance(part, Piece):
            parts.append(_piece(rebuilder, part))
        elif part:
            parts.append(ast.FormattedValue(rebuilder.expr(part), -1, None))
    return rebuilder.assign(ast.JoinedStr(parts), "text")


def later_string(rebuilder: Rebuilder, obj: LaterString) -> ast.expr:
    """Rebuild a deferred text by the call that makes it. The call runs after the graph."""
    keywords = [ast.keyword(name, rebuilder.expr(value)) for name, value in obj.kwargs.items()]
    function = rebuilder.constant(obj.function, obj.function.__name__)
    return rebuilder.assign(ast.Call(function, [rebuilder.expr(arg) for arg in obj.args], keywords), "text")


RULES: dict[type, Rule] = {
    Array: rebuild,
    Scalar: scalar,
    Text: text,
    LaterString: later_string,
    torch.UntypedStorage: storage,
    **dict.fromkeys(CONSTANT_TYPES | {np.finfo, np.iinfo, np.ufunc, type(np.sum)}, constant),
}
