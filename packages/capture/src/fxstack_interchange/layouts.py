"""In which order eager's kernels lay out results, for the operators for which torch's fake kernels say otherwise.

The kernels for real tensors are the authority; torch computes these operators on fake tensors by compositions that keep
another order of the dimensions when arguments are permuted. A test compares both with eager.
"""

from __future__ import annotations

from functools import cache
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor
from torch._ops import OpOverload
from torch._prims_common import compute_elementwise_output_strides, make_contiguous_strides_for
from torch.fx.experimental.symbolic_shapes import statically_known_true

from fxstack_interchange.iteration import (
    Operand,
    dense,
    hints,
    iterated_strides,
    operand,
    preserved_strides,
)

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

_ATEN = torch.ops.aten


def eager_strides(
    func: Any, args: Sequence[Any], kwargs: dict[str, Any], result: Any
) -> tuple[Any, ...] | None:
    """The strides that eager's kernel gives the (first) result of ``func``; None if they are those of ``result``.

    Where sizes or strides are symbolic, only the strides of dimensions of one element are known.
    """
    first = result[0] if isinstance(result, (list, tuple)) and result else result
    if not isinstance(first, Tensor) or first.dim() == 0 or first.layout is not torch.strided:
        return (
            None  # without dimensions also of numbers alone: torch.div(7, 2, rounding_mode="floor")
        )
    strides = _of_several(func, args, first)
    return _of_one(func, args, kwargs, first) if strides is None else strides


def _of_several(func: Any, args: Sequence[Any], first: Tensor) -> tuple[int, ...] | None:
    """For operators whose fake kernels order dimensions of several elements otherwise."""
    rule = _RULES.get(func)
    if rule is None:
        return None
    if any(
        x.layout is not torch.strided or x._has_symbolic_sizes_strides
        for x in (first, *_tensors(args))
    ):
        return None
    strides = tuple(rule(first, args))
    differs = any(
        size > 1 and mine != theirs
        for size, mine, theirs in zip(first.shape, first.stride(), strides, strict=True)
    )
    return strides if differs and first.numel() else None


def _of_one(
    func: Any, args: Sequence[Any], kwargs: dict[str, Any], first: Tensor
) -> tuple[Any, ...] | None:
    """For results with dimensions of one element."""
    if not any(type(size) is int and size == 1 for size in first.shape):
        return None
    if any(type(size) is int and size == 0 for size in first.shape):
        return None
    strides = _whole(func, args, kwargs, first)
    if strides is None:
        return None
    own = first.stride()
    if first._has_symbolic_sizes_strides:
        strides = tuple(
            theirs if type(size) is int and size == 1 else mine
            for size, mine, theirs in zip(first.shape, own, strides, strict=True)
        )
    same = all(
        mine is theirs or _same(mine, theirs) for mine, theirs in zip(own, strides, strict=True)
    )
    return None if same else strides


def _whole(
    func: Any, args: Sequence[Any], kwargs: dict[str, Any], first: Tensor
) -> tuple[Any, ...] | None:
    """The strides of all dimensions by the rule of ``func``; None if there is none."""
    if func in _CONTIGUOUS:
        return dense(first.shape, range(first.dim()))
    operands = _operands(func, args, kwargs)
    if not operands:
        return None
    if func in _COPIES:
        return preserved_strides(first, operands[0])
    return iterated_strides(first, operands)


def _operands(func: Any, args: Sequence[Any], kwargs: dict[str, Any]) -> list[Operand] | None:
    """What the result's layout depends on; None if nothing is known of it."""
    if func in _COPIES:
        preserves = kwargs.get("memory_format") in (None, torch.preserve_format)
        values: list[Any] = [args[0]] if preserves else []
    elif _is_one_pass(func):
        numbers = _numbers(func)
        values = [
            x
            for k, x in enumerate(args)
            if isinstance(x, Tensor) or (k in numbers and x is not None)
        ]
    else:
        return None
    if any(isinstance(x, Tensor) and x.layout is not torch.strided for x in values):
        return None
    operands = [operand(x) if isinstance(x, Tensor) else _NUMBER for x in values]
    return None if None in operands else [x for x in operands if x is not None]


@cache
def _is_one_pass(func: Any) -> bool:
    """Whether ``func`` computes a new tensor by one ``TensorIterator`` over its tensors."""
    return (
        isinstance(func, OpOverload)
        and func.namespace == "aten"
        and torch.Tag.pointwise in func.tags
        and not any(argument.alias_info for argument in func._schema.arguments)
        and func not in _NOT_ONE_PASS
    )


@cache
def _numbers(func: Any) -> frozenset[int]:
    """The positions at which a number becomes a tensor without dimensions."""
    wraps = "calar" in func._overloadname and func not in _SCALARS_AS_THEY_ARE
    types = [str(argument.type) for argument in func._schema.arguments]
    return frozenset(
        k
        for k, kind in enumerate(types)
        if kind == "Tensor" or (wraps and k < 2 and kind == "number")
    )


def _same(mine: Any, theirs: Any) -> bool:
    """Whether two strides are known to be equal, without a guard."""
    if type(mine) is int and type(theirs) is int:
        return mine == theirs
    return bool(statically_known_true(mine == theirs))


def in_layout(result: Any, strides: Sequence[int]) -> Any:
    """``result``, whose first or only tensor is copied to dense memory with ``strides``."""
    if isinstance(result, (list, tuple)):
        return (in_layout(result[0], strides), *result[1:])
    known = hints(strides) or strides
    order = sorted(range(result.dim()), key=lambda dim: -known[dim])
    copied = result.permute(order).clone(memory_format=torch.contiguous_format)
    return copied.permute([order.index(dim) for dim in range(result.dim())])


def as_said(result: Any, strides: Sequence[Any]) -> Any:
    """``result`` of fake tensors, whose first or only one is replaced by a new one with ``strides``."""
    if isinstance(result, (list, tuple)):
        return (as_said(result[0], strides), *result[1:])
    return result.new_empty_strided(result.shape, strides)


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
    if any(indices[dim].dtype in (torch.bool, torch.uint8) for dim in at):
        return tuple(result.stride())
    given = torch.broadcast_tensors(*(indices[dim] for dim in at))
    before = list(range(at[0])) if at[-1] - at[0] + 1 == len(at) else []
    after = [dim for dim in range(source.dim()) if dim not in (*before, *at)]
    kept = [0] * len(before), [0] * len(after)
    strides = [[source.stride(dim) for dim in dims] for dims in (before, after)]
    operands = [[*strides[0], *[0] * given[0].dim(), *strides[1]]]
    operands += [[*kept[0], *index.stride(), *kept[1]] for index in given]
    like = (torch.empty_strided(result.shape, own, device="meta") for own in operands)
    return tuple(compute_elementwise_output_strides(*like))


_NUMBER = Operand((), ())
_COPIES = frozenset(
    {
        _ATEN.clone.default,
        _ATEN._to_copy.default,
        _ATEN.empty_like.default,
        _ATEN.flip.default,
        _ATEN.full_like.default,
        _ATEN.ones_like.default,
        _ATEN.rand_like.default,
        _ATEN.randn_like.default,
        _ATEN.zeros_like.default,
    }
)
"""Operators whose result preserves the memory format of their first argument."""
_CONTIGUOUS = frozenset({_ATEN.tril.default, _ATEN.triu.default})
_NOT_ONE_PASS = frozenset({_ATEN.masked_fill.Scalar})
_SCALARS_AS_THEY_ARE = frozenset({_ATEN.pow.Tensor_Scalar, _ATEN.lerp.Scalar})
"""Overloads for numbers which do not make tensors of them."""


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
