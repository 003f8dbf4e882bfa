"""``tensor[i]`` with a symbolic number ``i``, recorded as ``select``.

torch's ``__getitem__`` would read the value of the index. That would specialise the value, and the number of
a tensor has no value while tracing. ``select`` accepts a symbolic number. Therefore the rule records
``select`` for the dimension of the index, and then the rest of the subscript.
"""

from __future__ import annotations

import operator
from collections.abc import Callable
from types import EllipsisType
from typing import Any, TypeGuard

import torch

from fxstack_capture.torch_compat import FakeTensor, functorch
from fxstack_capture.torch_side.fakes import writes
from fxstack_capture.torch_side.numbers import known_values
from fxstack_capture.torch_side.recording.protocol import TracerProtocol
from fxstack_capture.torch_side.rules import numpy_indices
from fxstack_capture.torch_side.subclasses.wrapper_classes import is_wrapped
from fxstack_capture.trace.state import Args, Kwargs

_INTEGERS = frozenset({torch.int8, torch.int16, torch.int32, torch.int64})
_EVERYTHING = slice(None)
_MASKS = frozenset({torch.bool, torch.uint8})


def read(tracer: TracerProtocol, fn: Callable[..., Any], args: Args, kwargs: Kwargs) -> Any:
    """Apply the rule for ``tensor[index]``."""
    if kwargs or len(args) != 2:
        return tracer.record(fn, args, kwargs)
    args = args[0], _with_numbers(tracer, numpy_indices.plain(tracer, args[1]))
    if not _has_symbol(args[1]):
        return tracer.record(fn, args, {})
    if _is_outside(*args):
        return tracer.record(fn, (args[0], _as_numbers(args[1])), {})
    tensor, rest = _select_symbolic(tracer, *args)
    return tracer.record(operator.getitem, (tensor, rest), {}) if rest else tensor


def write(tracer: TracerProtocol, fn: Callable[..., Any], args: Args, kwargs: Kwargs) -> Any:
    """Apply the rule for ``tensor[index] = value``."""
    if kwargs or len(args) != 3 or _is_refused(args[0]):
        return tracer.record(fn, args, kwargs)
    args = args[0], _with_numbers(tracer, numpy_indices.plain(tracer, args[1])), args[2]
    if not _has_symbol(args[1]):
        return tracer.record(fn, args, {})
    if _is_outside(*args[:2]):
        return tracer.record(fn, (args[0], _as_numbers(args[1]), args[2]), {})
    tensor, rest = _select_symbolic(tracer, *args[:2])
    return tracer.record(operator.setitem, (tensor, rest or ..., args[2]), {})


def _with_numbers(tracer: TracerProtocol, index: object) -> Any:
    """Return ``index``. If torch would read the number of an integer tensor, the number replaces the tensor."""

    # The numbers in slices determine sizes that depend on tensor data. The options must allow this.
    def number(value: object) -> Any:
        """Return the known constant of an index tensor. If it is unknown, return its number in the graph."""
        constant = known_values.value_of(tracer, value)
        return tracer.number_in(value) if constant is None else int(constant)

    def item(value: object) -> Any:
        """Replace an index tensor of one element by its number. This includes the bounds of slices."""
        if type(value) is slice and tracer.assumptions.captures_numbers:
            bounds = (value.start, value.stop, value.step)
            return slice(*(number(x) if _is_number(x) and x.numel() == 1 else x for x in bounds))
        return number(value) if _is_number(value) and value.dim() == 0 else value

    return tuple(map(item, index)) if type(index) is tuple else item(index)


def _is_number(value: Any) -> TypeGuard[torch.Tensor]:
    """Return whether the value is an integer tensor. If it has one element, torch reads it as a number.

    Under ``vmap``, a tensor of several examples is no number.
    """
    while is_wrapped(value) and not functorch.is_batchedtensor(value):
        value = functorch.get_unwrapped(value)
    return type(value) is FakeTensor and value.dtype in _INTEGERS


def _is_refused(tensor: torch.Tensor) -> bool:
    """Return whether autograd rejects an assignment to ``tensor``, because it is a leaf that requires grad."""
    may_be_leaf = tensor.requires_grad and writes.is_leaf(tensor) is not False
    return bool(may_be_leaf and torch.is_grad_enabled())


def _has_symbol(index: object) -> bool:
    """Return whether an item is symbolic, and the number of dimensions of each item is known."""
    if type(index) is torch.SymInt:
        return True
    return (
        type(index) is tuple
        and any(type(item) is torch.SymInt for item in index)
        and all(_dimensions(item) is not None for item in index)
    )


def _dimensions(item: object) -> int | None:
    """Return the number of tensor dimensions that an item indexes. None if it is unknown."""
    if item is None or isinstance(item, EllipsisType):
        return 0
    if isinstance(item, torch.Tensor):
        return item.dim() if item.dtype in _MASKS else 1
    return 1 if type(item) in (int, torch.SymInt, slice) else None


def _is_outside(tensor: torch.Tensor, index: object) -> bool:
    """Return whether a number of the program is out of range. The error text then contains its value."""
    items, behind = _items(tensor, index)
    dim = 0
    for item in items:
        if _has_value(item) and (dim >= tensor.dim() or not -tensor.shape[dim] <= item < tensor.shape[dim]):
            return True
        dim += behind if isinstance(item, EllipsisType) else _dimensions(item) or 0
    return False


def _as_numbers(index: Any) -> Any:
    """Return the index with current values. Torch then raises its error with these numbers in the text."""
    if type(index) is tuple:
        return tuple(map(_as_numbers, index))
    return int(index) if _has_value(index) else index


def _has_value(item: object) -> bool:
    """Return whether the item is a symbolic number whose value tracing knows."""
    return isinstance(item, torch.SymInt) and item.node.hint is not None


def _items(tensor: torch.Tensor, index: object) -> tuple[tuple[Any, ...], int]:
    """Return the items of ``index``, including an ellipsis, and the number of dimensions that the ellipsis
    stands for.
    """
    items = index if type(index) is tuple else (index,)
    if not any(isinstance(item, EllipsisType) for item in items):
        items = (*items, ...)
    return items, tensor.dim() - sum(_dimensions(item) or 0 for item in items)


def _select_symbolic(
    tracer: TracerProtocol, tensor: torch.Tensor, index: object
) -> tuple[torch.Tensor, tuple[Any, ...]]:
    """Return the tensor after ``select`` for each symbolic index, and the rest of the index."""
    items, behind = _items(tensor, index)
    last = max(position for position, item in enumerate(items) if type(item) is torch.SymInt)
    rest: list[Any] = []
    dim = 0
    for position, item in enumerate(items):
        if type(item) is torch.SymInt:
            tensor = tracer.record(torch.select, (tensor, dim, item), {})
            continue
        if (
            item is None and position < last
        ):  # the new dimension has the stride of the tensor before ``select``
            tensor = tracer.record(torch.unsqueeze, (tensor, dim), {})
            rest.append(_EVERYTHING)
            dim += 1
            continue
        rest.append(item)
        dim += behind if isinstance(item, EllipsisType) else _dimensions(item) or 0
    # if only ``...`` is left, nothing remains to be indexed
    return tensor, () if len(rest) == 1 else tuple(rest)
