"""In which order eager's kernels lay out results, for the operators for which torch's fake kernels say otherwise.

The kernels for real tensors are the authority; torch computes these operators on fake tensors by compositions that keep
another order of the dimensions when arguments are permuted. A test compares both with eager.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor
from torch._prims_common import compute_elementwise_output_strides, make_contiguous_strides_for

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

_ATEN = torch.ops.aten


def eager_strides(func: Any, args: Sequence[Any], result: Any) -> tuple[int, ...] | None:
    """The strides that eager's kernel gives the (first) result of ``func``; None if they are those of ``result``.

    Nothing is known where sizes or strides are symbolic.
    """
    rule = _RULES.get(func)
    if rule is None:
        return None
    tensors = _tensors(args)
    first = result[0] if isinstance(result, (list, tuple)) else result
    if first.dim() == 0:  # also of numbers alone: torch.div(7, 2, rounding_mode="floor")
        return None
    if any(
        x.layout is not torch.strided or x._has_symbolic_sizes_strides for x in (first, *tensors)
    ):
        return None
    strides = tuple(rule(first, args))
    differs = any(
        size > 1 and mine != theirs
        for size, mine, theirs in zip(first.shape, first.stride(), strides, strict=True)
    )
    return strides if differs and first.numel() else None


def in_layout(result: Any, strides: Sequence[int]) -> Any:
    """``result``, whose first or only tensor is copied to dense memory with ``strides``."""
    if isinstance(result, (list, tuple)):
        return (in_layout(result[0], strides), *result[1:])
    order = sorted(range(result.dim()), key=lambda dim: -strides[dim])
    copied = result.permute(order).clone(memory_format=torch.contiguous_format)
    return copied.permute([order.index(dim) for dim in range(result.dim())])


def _tensors(args: Sequence[Any]) -> list[Tensor]:
    """Those among the arguments, and in lists of them."""
    flat = [x for arg in args for x in (arg if isinstance(arg, (list, tuple)) else (arg,))]
    return [x for x in flat if isinstance(x, Tensor)]


def _elementwise(_result: Tensor, args: Sequence[Any]) -> Sequence[int]:
    """As ``TensorIterator`` does: the first operand decides, those after it where it is broadcast."""
    return tuple(compute_elementwise_output_strides(*torch.broadcast_tensors(*_tensors(args))))


def _like_first(result: Tensor, args: Sequence[Any]) -> Sequence[int]:
    return _elementwise(result, args[:1])


def _contiguous(result: Tensor, _args: Sequence[Any]) -> Sequence[int]:
    return tuple(make_contiguous_strides_for(result.shape))


def _suggested(result: Tensor, args: Sequence[Any]) -> Sequence[int]:
    """Channels last if the first argument is, contiguous otherwise."""
    for format_, rank in ((torch.channels_last, 4), (torch.channels_last_3d, 5)):
        if result.dim() == rank and torch._prims_common.suggest_memory_format(args[0]) is format_:
            like = torch.empty(result.shape, device="meta", memory_format=format_)
            return tuple(like.stride())
    return _contiguous(result, args)


def _indexed(result: Tensor, args: Sequence[Any]) -> Sequence[int]:
    """As ``TensorIterator`` does for the source, broadcast along the indices, and the indices, broadcast along the rest."""
    source, indices = args[0], args[1]
    at = [dim for dim, index in enumerate(indices) if index is not None]
    given = torch.broadcast_tensors(*(indices[dim] for dim in at))
    if any(index.dtype in (torch.bool, torch.uint8) for index in given):
        return tuple(result.stride())
    before = list(range(at[0])) if at[-1] - at[0] + 1 == len(at) else []
    after = [dim for dim in range(source.dim()) if dim not in (*before, *at)]
    kept = [0] * len(before), [0] * len(after)
    strides = [[source.stride(dim) for dim in dims] for dims in (before, after)]
    operands = [[*strides[0], *[0] * given[0].dim(), *strides[1]]]
    operands += [[*kept[0], *index.stride(), *kept[1]] for index in given]
    like = (torch.empty_strided(result.shape, own, device="meta") for own in operands)
    return tuple(compute_elementwise_output_strides(*like))


_RULES: dict[Any, Callable[[Tensor, Sequence[Any]], Sequence[int]]] = {
    _ATEN.index.Tensor: _indexed,
    **dict.fromkeys(
        (
            _ATEN.copysign.Tensor,
            _ATEN.div.Tensor_mode,
            _ATEN.floor_divide.default,
            _ATEN.heaviside.default,
            _ATEN.logaddexp.default,
            _ATEN.logaddexp2.default,
            _ATEN.logical_and.default,
            _ATEN.logical_or.default,
            _ATEN.logical_xor.default,
            _ATEN.native_dropout_backward.default,
            _ATEN.special_xlog1py.default,
            _ATEN.xlogy.Tensor,
        ),
        _elementwise,
    ),
    **dict.fromkeys((_ATEN.index_fill.int_Scalar, _ATEN.index_fill.int_Tensor), _like_first),
    **dict.fromkeys(
        (
            _ATEN._batch_norm_with_update.default,
            _ATEN._native_batch_norm_legit.default,
            _ATEN._native_batch_norm_legit.no_stats,
            _ATEN._native_batch_norm_legit_no_training.default,
            _ATEN.native_batch_norm.default,
            _ATEN.roll.default,
        ),
        _suggested,
    ),
    **dict.fromkeys(
        (_ATEN.normal.Tensor_Tensor, _ATEN.normal.Tensor_float, _ATEN.normal.float_Tensor),
        _contiguous,
    ),
}
