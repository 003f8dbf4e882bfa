"""The strides that eager's ``TensorIterator`` gives the result of an elementwise operator.

The algorithm is that of ``aten/src/ATen/TensorIterator.cpp`` (``compute_fast_setup_type``,
``reorder_dimensions``, ``allocate_or_resize_outputs``). Torch's fake kernels follow it for dimensions with
several elements, but not for dimensions with one element. No memory access depends on the stride of such a
dimension, but a program may read the stride. Symbolic sizes are compared by their hints. These comparisons
decide only the stride of dimensions with one element.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

from torch import Tensor

CHANNELS_LAST = (0, 2, 3, 1)
_RANKS = (4, 5)
"""Ranks of batches of images and of volumes."""


class Operand(NamedTuple):
    """Sizes and strides of an argument, with hints in place of symbols."""

    sizes: tuple[int, ...]
    strides: tuple[int, ...]


def operand(tensor: Tensor) -> Operand | None:
    """Return the ``Operand`` of ``tensor``; None if a size or stride has no hint."""
    sizes, strides = hints(tensor.shape), hints(tensor.stride())
    return None if sizes is None or strides is None else Operand(sizes, strides)


def hints(values: Sequence[Any]) -> tuple[int, ...] | None:
    if all(type(value) is int for value in values):
        return tuple(values)
    known = [value if type(value) is int else value.node.hint for value in values]
    return tuple(map(int, known)) if all(type(value) is int for value in known) else None


def is_packed(given: Operand, order: Sequence[int]) -> bool:
    """Whether the elements are contiguous in memory. ``order`` lists the dimensions from the outermost."""
    expected = 1
    for dim in reversed(order):
        if given.sizes[dim] != 1:
            if given.strides[dim] != expected:
                return False
            expected *= given.sizes[dim]
    return True


def is_dense(given: Operand) -> bool:
    """Whether the elements occupy memory without gaps or overlaps, in any order of the dimensions."""
    return is_packed(given, sorted(range(len(given.sizes)), key=lambda dim: -given.strides[dim]))


def dense(shape: Sequence[Any], order: Sequence[int]) -> tuple[Any, ...]:
    """Return the strides of contiguous memory. ``order`` lists the dimensions from the outermost."""
    strides: list[Any] = [1] * len(shape)
    expected: Any = 1
    for dim in reversed(order):
        strides[dim] = expected
        expected = expected * shape[dim]
    return tuple(strides)


def iterated_strides(result: Tensor, operands: Sequence[Operand]) -> tuple[Any, ...] | None:
    """Return the strides of ``result``, computed from ``operands`` in one pass; None if hints are missing."""
    shape = hints(result.shape)
    if shape is None or not operands:
        return None
    if len({given.sizes for given in operands}) == 1:
        rank = len(shape)
        for order in (tuple(range(rank)), *([CHANNELS_LAST] if rank == len(CHANNELS_LAST) else [])):
            if all(is_packed(given, order) for given in operands):
                return dense(result.shape, order)
        if all(map(is_dense, operands)) and len({given.strides for given in operands}) == 1:
            return _as_in(result, operands[-1])
    return dense(result.shape, _order(shape, [_expanded(given, shape) for given in operands]))


def preserved_strides(result: Tensor, given: Operand) -> tuple[Any, ...] | None:
    """Return the strides of a copy that preserves the memory format of ``given`` (``empty_like``)."""
    if is_dense(given):
        return _as_in(result, given)
    return dense(result.shape, _order(given.sizes, [given.strides]))


def copied(given: Operand) -> Operand:
    """Return the ``Operand`` of a copy that preserves the memory format of ``given``."""
    if is_dense(given):
        return given
    return Operand(given.sizes, dense(given.sizes, _order(given.sizes, [given.strides])))


def channels_last(rank: int) -> tuple[int, ...]:
    """Return the dimensions of a batch of images or volumes, outermost first, channels innermost."""
    return (0, *range(2, rank), 1)


def is_channels_last(given: Operand) -> bool:
    """Whether ATen treats the strides of images or volumes as channels last (``is_channels_last_strides``).

    Ambiguous strides are not channels last.
    """
    rank, least = len(given.sizes), 0
    if rank not in _RANKS or given.strides[1] == 0:
        return False
    for dim in reversed(channels_last(rank)):
        size, stride = given.sizes[dim], given.strides[dim]
        if size == 0 or stride < least or (dim == 0 and least == given.strides[1]):
            return False
        least = stride * size if size > 1 else stride
    return True


def viewed_strides(given: Operand, shape: Sequence[int]) -> tuple[int, ...] | None:
    """Return the strides of a view of ``given`` with sizes ``shape`` (``computeStride_impl``).

    Return None if no such view exists.
    """
    if not given.sizes:
        return (1,) * len(shape)
    if 0 in given.sizes:
        same = given.sizes == tuple(shape)
        return given.strides if same else dense([max(size, 1) for size in shape], range(len(shape)))
    strides, place = [0] * len(shape), len(shape) - 1
    base, whole, seen = given.strides[-1], 1, 1
    for dim in reversed(range(len(given.sizes))):
        whole *= given.sizes[dim]
        outer = dim - 1
        if dim and (given.sizes[outer] == 1 or given.strides[outer] == whole * base):
            continue
        while place >= 0 and (seen < whole or shape[place] == 1):
            strides[place] = seen * base
            seen *= shape[place]
            place -= 1
        if seen != whole:
            return None
        base, whole, seen = given.strides[outer], 1, 1
    return tuple(strides) if place < 0 else None


def _as_in(result: Tensor, given: Operand) -> tuple[Any, ...] | None:
    """Return the strides of ``given``.

    If ``result`` has symbolic strides, keep each stride whose hint agrees.
    """
    own = result.stride()
    if all(type(stride) is int for stride in own):
        return given.strides
    known = hints(own)
    if known is None:
        return None
    pairs = zip(own, known, given.strides, strict=True)
    return tuple(mine if hint == theirs else theirs for mine, hint, theirs in pairs)


def _expanded(given: Operand, shape: Sequence[int]) -> tuple[int, ...]:
    """Return the strides of ``given``, broadcast to ``shape``.

    The stride of a broadcast dimension is zero.
    """
    missing = len(shape) - len(given.sizes)
    own = zip(given.sizes, given.strides, shape[missing:], strict=True)
    return (0,) * missing + tuple(0 if size == 1 and size != whole else stride for size, stride, whole in own)


def _order(shape: Sequence[int], operands: Sequence[tuple[int, ...]]) -> list[int]:
    """Return the dimensions from the outermost to the innermost.

    This is an insertion sort in which ``_compared`` cannot order all pairs.
    """
    inner_first = list(reversed(range(len(shape))))
    for start in range(1, len(shape)):
        place = start
        for other in reversed(range(start)):
            found = _compared(inner_first[other], inner_first[place], shape, operands)
            if found > 0:
                inner_first[other], inner_first[place] = inner_first[place], inner_first[other]
                place = other
            elif found < 0:
                break
    return inner_first[::-1]


def _compared(first: int, second: int, shape: Sequence[int], operands: Sequence[tuple[int, ...]]) -> int:
    """Return 1 if ``second`` is further inside than ``first``, -1 if it is not, 0 if no operand decides."""
    for strides in operands:
        one, other = strides[first], strides[second]
        if one == 0 or other == 0:
            continue
        if one != other:
            return -1 if one < other else 1
        if shape[first] > shape[second]:
            return 1
    return 0
