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
    """Return sizes or strides with symbols replaced by hints; None if a symbol has no hint."""
    if all(type(value) is int for value in values):
        return tuple(values)
    hinted = [value if type(value) is int else value.node.hint for value in values]
    return tuple(map(int, hinted)) if all(type(value) is int for value in hinted) else None


def is_packed(source: Operand, order: Sequence[int]) -> bool:
    """Whether the elements are contiguous in memory. ``order`` lists the dimensions from the outermost."""
    expected = 1
    for dim in reversed(order):
        if source.sizes[dim] != 1:
            if source.strides[dim] != expected:
                return False
            expected *= source.sizes[dim]
    return True


def is_dense(source: Operand) -> bool:
    """Whether the elements occupy memory without gaps or overlaps, in any order of the dimensions."""
    return is_packed(source, sorted(range(len(source.sizes)), key=lambda dim: -source.strides[dim]))


def dense_strides(shape: Sequence[Any], order: Sequence[int]) -> tuple[Any, ...]:
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
    if len({source.sizes for source in operands}) == 1:
        rank = len(shape)
        # ATen has this short way for contiguous and for channels-last operands only.
        for order in (tuple(range(rank)), *([CHANNELS_LAST] if rank == len(CHANNELS_LAST) else [])):
            if all(is_packed(source, order) for source in operands):
                return dense_strides(result.shape, order)
        if all(map(is_dense, operands)) and len({source.strides for source in operands}) == 1:
            return _strides_of(result, operands[-1])
    return dense_strides(result.shape, _order(shape, [_expanded(source, shape) for source in operands]))


def preserved_strides(result: Tensor, source: Operand) -> tuple[Any, ...] | None:
    """Return the strides of a copy that preserves the memory format of ``source`` (``empty_like``)."""
    if is_dense(source):
        return _strides_of(result, source)
    return dense_strides(result.shape, _order(source.sizes, [source.strides]))


def preserved_copy(source: Operand) -> Operand:
    """Return the ``Operand`` of a copy that preserves the memory format of ``source``."""
    if is_dense(source):
        return source
    return Operand(source.sizes, dense_strides(source.sizes, _order(source.sizes, [source.strides])))


def channels_last(rank: int) -> tuple[int, ...]:
    """Return the dimensions of a channels-last batch, from the outermost to the innermost dimension."""
    return (0, *range(2, rank), 1)


def is_channels_last(source: Operand) -> bool:
    """Whether ATen treats the strides of images or volumes as channels last (``is_channels_last_strides``).

    Ambiguous strides are not channels last.
    """
    rank, least = len(source.sizes), 0
    if rank not in _RANKS or source.strides[1] == 0:
        return False
    for dim in reversed(channels_last(rank)):
        size, stride = source.sizes[dim], source.strides[dim]
        if size == 0 or stride < least or (dim == 0 and least == source.strides[1]):
            return False
        least = stride * size if size > 1 else stride
    return True


def viewed_strides(source: Operand, shape: Sequence[int]) -> tuple[int, ...] | None:
    """Return the strides of a view of ``source`` with sizes ``shape`` (``computeStride_impl``).

    Return None if no such view exists.
    """
    if not source.sizes:
        return (1,) * len(shape)
    if 0 in source.sizes:
        same = source.sizes == tuple(shape)
        return source.strides if same else dense_strides([max(size, 1) for size in shape], range(len(shape)))
    strides, position = [0] * len(shape), len(shape) - 1
    base, whole, seen = source.strides[-1], 1, 1
    for dim in reversed(range(len(source.sizes))):
        whole *= source.sizes[dim]
        outer = dim - 1
        if dim and (source.sizes[outer] == 1 or source.strides[outer] == whole * base):
            continue
        while position >= 0 and (seen < whole or shape[position] == 1):
            strides[position] = seen * base
            seen *= shape[position]
            position -= 1
        if seen != whole:
            return None
        base, whole, seen = source.strides[outer], 1, 1
    return tuple(strides) if position < 0 else None


def _strides_of(result: Tensor, source: Operand) -> tuple[Any, ...] | None:
    """Return the strides of ``source``.

    If ``result`` has symbolic strides, keep each stride whose hint agrees.
    """
    fake_strides = result.stride()
    if all(type(stride) is int for stride in fake_strides):
        return source.strides
    hinted = hints(fake_strides)
    if hinted is None:
        return None
    pairs = zip(fake_strides, hinted, source.strides, strict=True)
    return tuple(mine if hint == theirs else theirs for mine, hint, theirs in pairs)


def _expanded(source: Operand, shape: Sequence[int]) -> tuple[int, ...]:
    """Return the strides of ``source``, broadcast to ``shape``.

    The stride of a broadcast dimension is zero.
    """
    missing = len(shape) - len(source.sizes)
    dimensions = zip(source.sizes, source.strides, shape[missing:], strict=True)
    return (0,) * missing + tuple(
        0 if size == 1 and size != whole else stride for size, stride, whole in dimensions
    )


def _order(shape: Sequence[int], operands: Sequence[tuple[int, ...]]) -> list[int]:
    """Return the dimensions from the outermost to the innermost.

    This is an insertion sort in which ``_compare_dimensions`` cannot order all pairs.
    """
    inner_first = list(reversed(range(len(shape))))
    for start in range(1, len(shape)):
        position = start
        for other in reversed(range(start)):
            comparison = _compare_dimensions(inner_first[other], inner_first[position], shape, operands)
            if comparison > 0:
                inner_first[other], inner_first[position] = inner_first[position], inner_first[other]
                position = other
            elif comparison < 0:
                break
    return inner_first[::-1]


def _compare_dimensions(
    first: int, second: int, shape: Sequence[int], operands: Sequence[tuple[int, ...]]
) -> int:
    """Return 1 if ``second`` is further inside than ``first``, -1 if it is not, 0 if no operand decides."""
    for strides in operands:
        one, other = strides[first], strides[second]
        # A stride of 0 is a broadcast dimension, whose place this operand does not decide.
        if one == 0 or other == 0:
            continue
        if one != other:
            return -1 if one < other else 1
        # For equal strides, ATen puts the smaller dimension further inside.
        if shape[first] > shape[second]:
            return 1
    return 0
