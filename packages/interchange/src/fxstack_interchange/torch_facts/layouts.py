"""The strides of eager's results, for operators whose fake kernels return other strides.

The kernels for real tensors are the authority. For fake tensors, torch computes these operators by
decompositions, which order the dimensions differently if arguments are permuted. A test compares this module
with eager.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import cache
from typing import Any

import torch
from torch import Tensor
from torch.fx.experimental.symbolic_shapes import statically_known_true

from fxstack_interchange.torch_compat import OpOverload
from fxstack_interchange.torch_facts.iteration import (
    Operand,
    channels_last,
    dense_strides,
    hints,
    is_channels_last,
    iterated_strides,
    operand,
    preserved_copy,
    preserved_strides,
    viewed_strides,
)

Rule = Callable[[Tensor, Sequence[Any]], tuple[Any, ...] | None]

# Limits: max_pool1d without a gradient, of an input with permuted dimensions, gets the strides of max_pool1d
# with a gradient. Eager's result is contiguous.

_ATEN = torch.ops.aten


Strides = tuple[Any, ...]
ResultStrides = list[Strides | None]
"""The strides that eager gives each result of an operator.

None means that the result already has these strides.
"""


def eager_strides(
    func: object, args: Sequence[Any], kwargs: dict[str, Any], result: object
) -> ResultStrides | None:
    """Return the strides that eager's kernel gives the results of ``func``.

    Return None if ``result`` has these strides.

    Symbolic sizes are compared by their hints.
    """
    results = result if isinstance(result, (list, tuple)) else (result,)
    if not results or not _has_strides(results[0]):
        # A call on numbers alone also gives a 0-d result, for example torch.div(7, 2, rounding_mode="floor").
        return None
    strides: ResultStrides = [_if_different(results[0], _eager_strides_of(func, args, kwargs, results[0]))]
    if func in _ALL_RESULTS:
        strides += [_if_different(x, _eager_strides_of(func, args, kwargs, x)) for x in results[1:]]
    return None if strides.count(None) == len(strides) else strides


def _has_strides(value: object) -> bool:
    return isinstance(value, Tensor) and value.dim() > 0 and value.layout is torch.strided


def _eager_strides_of(
    func: object, args: Sequence[Any], kwargs: dict[str, Any], first: Tensor
) -> Strides | None:
    """Return the strides of ``first`` by the rule of ``func``.

    Return None if there is no rule or the rule does not decide.
    """
    if any(type(size) is int and size == 0 for size in first.shape) and func is not _VIEW:
        return None
    if any(x.layout is not torch.strided for x in _tensors(args)):
        return None
    rule = _RULES.get(func)
    if rule is not None:
        return rule(first, args)
    ones = [type(size) is int and size == 1 for size in first.shape]
    if not any(ones) and _is_plain(first, args):
        return None
    strides = _strides_by_rule(func, args, kwargs, first)
    if strides is None or not first._has_symbolic_sizes_strides:
        return strides
    return _keep_symbols(first.stride(), strides, ones)


def _keep_symbols(fake: Strides, eager: Strides, ones: list[bool]) -> Strides:
    """Return ``eager`` if the hints differ in a dimension with several elements.

    Otherwise return ``fake``, with the strides of ``eager`` in dimensions with one element. Torch's fake
    kernels add guards for their comparisons; this module does not.
    """
    fake_hints, eager_hints = hints(fake), hints(eager)
    triples = list(zip(fake_hints or (), eager_hints or (), ones, strict=False))
    if any(a != b for a, b, is_one in triples if not is_one):
        return eager
    return tuple(b if is_one else a for a, b, is_one in zip(fake, eager, ones, strict=True))


def _is_plain(first: Tensor, args: Sequence[Any]) -> bool:
    """Whether all tensors are contiguous and have one shape. No operator needs a correction in this case.

    Tensors with symbolic sizes are not compared, because a comparison would add a guard.
    """
    others = [x for x in _tensors(args) if x.dim() > 0]
    if any(x._has_symbolic_sizes_strides for x in [first, *others]):
        return False
    return first.is_contiguous() and all(x.shape == first.shape and x.is_contiguous() for x in others)


def _if_different(first: Any, strides: Strides | None) -> Strides | None:
    """Return eager's ``strides`` if the fake result ``first`` has other strides; else None."""
    if strides is None:
        return None
    pairs = zip(first.stride(), strides, strict=True)
    return None if all(fake is eager or _same(fake, eager) for fake, eager in pairs) else strides


def _strides_by_rule(
    func: object, args: Sequence[Any], kwargs: dict[str, Any], first: Tensor
) -> tuple[Any, ...] | None:
    """Return the strides of all dimensions by the rule of ``func``; None if there is no rule."""
    if func in _CONTIGUOUS:
        return dense_strides(first.shape, range(first.dim()))
    operands = _operands(func, args, kwargs, first)
    if not operands:
        return None
    if func in _COPIES:
        return preserved_strides(first, operands[0])
    return iterated_strides(first, operands)


def _operands(
    func: object, args: Sequence[Any], kwargs: dict[str, Any], first: Tensor
) -> list[Operand] | None:
    """Return the operands that decide the layout of ``first``; None if the operator has no rule."""
    if func in _COPIES:
        preserves = kwargs.get("memory_format") in (None, torch.preserve_format)
        values: list[Any] = [args[0]] if preserves else []
    elif _is_single_iteration(func):
        numbers = _wrapped_scalar_positions(func)
        values = [x for k, x in enumerate(args) if isinstance(x, Tensor) or (k in numbers and x is not None)]
    else:
        return None
    if any(isinstance(x, Tensor) and x.layout is not torch.strided for x in values):
        return None
    operands = [operand(x) if isinstance(x, Tensor) else _SCALAR_OPERAND for x in values]
    if None in operands:
        return None
    common = _common_dtype(values, first)
    kept = values[0] if func is _ATEN.where.self else None
    return [
        source if common is None or x is kept or _dtype_of(x) in (common, None) else preserved_copy(source)
        for x, source in zip(values, operands, strict=True)
        if source is not None
    ]


def _dtype_of(value: object) -> torch.dtype | None:
    return value.dtype if isinstance(value, Tensor) else None


def _common_dtype(values: list[Any], first: Tensor) -> torch.dtype | None:
    """Return the dtype to which ``TensorIterator`` casts its arguments before it looks at their strides.

    Return None if it does not cast. It never casts on a GPU.
    """
    tensors = [x for x in values if isinstance(x, Tensor)]
    if not tensors or first.device.type != "cpu":
        return None
    to_float = first.dtype.is_floating_point and not _has_fractions(tensors[0].dtype)
    if len({x.dtype for x in tensors}) == 1 and not to_float:
        return tensors[0].dtype
    return first.dtype if first.dtype is not torch.bool else _promoted(tensors)


def _has_fractions(dtype: torch.dtype) -> bool:
    return bool(dtype.is_floating_point or dtype.is_complex)


def _promoted(tensors: list[Tensor]) -> torch.dtype | None:
    """Return the common dtype of the two arguments of a comparison; None if there are not two."""
    return torch.result_type(*tensors) if len(tensors) == 2 else None


@cache
def _is_single_iteration(func: object) -> bool:
    """Whether ``func`` computes a new tensor by one ``TensorIterator`` over its tensors."""
    return (
        isinstance(func, OpOverload)
        and func.namespace == "aten"
        and torch.Tag.pointwise in func.tags
        and not any(argument.alias_info for argument in func._schema.arguments)
        and func not in _NOT_SINGLE_ITERATION
    )


@cache
def _wrapped_scalar_positions(func: Any) -> frozenset[int]:
    """Return the positions at which a number becomes a 0-d tensor."""
    wraps = "calar" in func._overloadname and func not in _UNWRAPPED_SCALARS
    types = [str(argument.type) for argument in func._schema.arguments]
    return frozenset(
        k for k, kind in enumerate(types) if kind == "Tensor" or (wraps and k < 2 and kind == "number")
    )


def _same(fake: object, eager: object) -> bool:
    """Whether two strides are known to be equal without a new guard."""
    if type(fake) is int and type(eager) is int:
        return fake == eager
    return bool(statically_known_true(fake == eager))


def copy_with_strides(result: object, strides: ResultStrides) -> Any:
    """Return ``result`` with each tensor that has an entry in ``strides`` copied to memory with these strides."""
    if isinstance(result, (list, tuple)):
        return (*map(_copy_with_strides, result, strides), *result[len(strides) :])
    return _copy_with_strides(result, strides[0])


def _copy_with_strides(result: Any, strides: Strides | None) -> Any:
    """Return a copy of ``result`` with the order of ``strides`` in memory; ``result`` if ``strides`` is None."""
    if strides is None:
        return result
    order_key = hints(strides) or strides
    order = sorted(range(result.dim()), key=lambda dim: -order_key[dim])
    contiguous = result.permute(order).clone(memory_format=torch.contiguous_format)
    return contiguous.permute([order.index(dim) for dim in range(result.dim())])


def view_with_strides(result: object, strides: ResultStrides) -> Any:
    """Return fake tensors ``result`` with each tensor that has an entry in ``strides`` viewed with these strides."""
    if isinstance(result, (list, tuple)):
        return (*map(_view_with_strides, result, strides), *result[len(strides) :])
    return _view_with_strides(result, strides[0])


def _view_with_strides(result: Any, strides: Strides | None) -> Any:
    """Return a view of ``result`` with these strides; ``result`` if ``strides`` is None."""
    if strides is None:
        return result
    return _AS_STRIDED(result, result.shape, strides, result.storage_offset())


def _tensors(args: Sequence[Any]) -> list[Tensor]:
    """Return the tensors among the arguments, and in lists of arguments."""
    flat = [x for arg in args for x in (arg if isinstance(arg, (list, tuple)) else (arg,))]
    return [x for x in flat if isinstance(x, Tensor)]


def _contiguous(result: Tensor, _args: Sequence[Any]) -> Strides:
    return dense_strides(result.shape, range(result.dim()))


def _preserves_layout_of(position: int) -> Rule:
    """Return a rule for results with the strides of ``empty_like`` of the argument at ``position``."""

    def rule(result: Tensor, args: Sequence[Any]) -> Strides | None:
        source = operand(args[position])
        return None if source is None else preserved_strides(result, source)

    return rule


def _channels_last_if(position: int) -> Rule:
    """Return a rule for results that are channels last if the argument at ``position`` is channels last, else
    contiguous.
    """

    def rule(result: Tensor, args: Sequence[Any]) -> Strides | None:
        """Return dense strides: channels last if the operand at ``position`` is. Return None if it is no tensor."""
        source = operand(args[position])
        if source is None:
            return None
        last = result.dim() == len(source.sizes) and is_channels_last(source)
        return dense_strides(result.shape, channels_last(result.dim()) if last else range(result.dim()))

    return rule


def _group_norm(result: Tensor, args: Sequence[Any]) -> Strides | None:
    """Return the strides of a group norm: on a CPU those of the memory format that the argument suggests."""
    return (_channels_last_if(0) if result.device.type == "cpu" else _contiguous)(result, args)


def _batch_norm(result: Tensor, args: Sequence[Any]) -> Strides | None:
    """Return the strides of a batch norm, which looks at dimensions of several elements first."""
    source, last = operand(args[0]), dense_strides(result.shape, channels_last(result.dim()))
    if source is not None and result.dim() in (4, 5) and not _is_dense(source, range(result.dim())):
        return last if _is_dense(source, channels_last(result.dim())) else _channels_last_if(0)(result, args)
    return None if source is None else _contiguous(result, args)


def _is_dense(source: Operand, order: Sequence[int]) -> bool:
    """Whether the dimensions of several elements have the strides of contiguous memory in ``order``."""
    dense = dense_strides(source.sizes, order)
    return all(size == 1 or a == b for size, a, b in zip(source.sizes, source.strides, dense, strict=True))


def _rolled(result: Tensor, args: Sequence[Any]) -> Strides | None:
    """Return the strides of ``roll``, which moves two parts of each dimension in turn."""
    source, shifts, rank = operand(args[0]), hints(args[1]), result.dim()
    if source is None or shifts is None or 0 in source.sizes:
        return None
    order: Sequence[int] = range(rank)
    for shift, dim in zip(shifts, args[2] if len(args) > 2 else (), strict=False):
        whole = source.sizes[dim]
        parts = [_part_of(source, dim % rank, size) for size in (-shift % whole, shift % whole)]
        # Where nothing moves, ATen makes a contiguous copy.
        last = shift % whole != 0 and all(map(is_channels_last, parts))
        order = channels_last(rank) if last else range(rank)
        source = Operand(source.sizes, dense_strides(source.sizes, order))
    return dense_strides(result.shape, order)


def _part_of(source: Operand, dim: int, size: int) -> Operand:
    return Operand((*source.sizes[:dim], size, *source.sizes[dim:][1:]), source.strides)


def _angle(result: Tensor, args: Sequence[Any]) -> Strides | None:
    """Return contiguous strides for a complex argument, because its angle is not computed in one pass."""
    source = operand(args[0])
    if args[0].is_complex() or source is None:
        return _contiguous(result, args)
    return iterated_strides(result, [source])


def _viewed(result: Tensor, args: Sequence[Any]) -> Strides | None:
    """Return the strides of a view with the sizes of ``result``, as ATen's ``computeStride`` does."""
    source = operand(args[0])
    shape = hints(result.shape)
    if source is None or shape is None or args[0]._has_symbolic_sizes_strides:
        return None
    return viewed_strides(source, shape)


def _elementwise(result: Tensor, args: Sequence[Any]) -> Strides | None:
    """Return the strides of a ``TensorIterator`` over all tensor arguments.

    The first operand decides. Where the first operand is broadcast, the next operands decide.
    """
    operands = [operand(x) for x in _tensors(args)]
    return None if None in operands else iterated_strides(result, [x for x in operands if x])


def _indexed(result: Tensor, args: Sequence[Any]) -> Strides | None:
    """Return the strides of a ``TensorIterator`` over the source and the indices.

    The source is broadcast along the dimensions of the indices. The indices are broadcast along the other
    dimensions.
    """
    source, indices = args[0], args[1]
    at = [dim for dim, index in enumerate(indices) if index is not None]
    if any(indices[dim].dtype in (torch.bool, torch.uint8) for dim in at):
        return None
    broadcast_indices = torch.broadcast_tensors(*(indices[dim] for dim in at))
    before = list(range(at[0])) if at[-1] - at[0] + 1 == len(at) else []
    after = [dim for dim in range(source.dim()) if dim not in (*before, *at)]
    outer, inner = ([source.stride(dim) for dim in dims] for dims in (before, after))
    shape = hints(result.shape)
    operands = [hints([*outer, *[0] * broadcast_indices[0].dim(), *inner])]
    operands += [_index_strides(index, len(before), shape) for index in broadcast_indices]
    if shape is None or None in operands:
        return None
    fake_strides = tuple(result.stride())
    strides = iterated_strides(result, [Operand(shape, x) for x in operands if x is not None])
    if strides is None:
        return None
    return tuple(
        fake if type(size) is int and size == 1 else eager
        for size, fake, eager in zip(result.shape, fake_strides, strides, strict=True)
    )


def _index_strides(index: Tensor, before: int, shape: Sequence[int] | None) -> tuple[int, ...] | None:
    """Return the strides of an index that is viewed with the rank of the result.

    Added dimensions have one element.

    As in torch's views, the stride of a dimension with one element covers the dimensions behind it. The
    stride of a broadcast dimension is 0.
    """
    sizes, steps = hints(index.shape), hints(index.stride())
    if sizes is None or steps is None or shape is None:
        return None
    after = len(shape) - before - len(sizes)
    viewed = [*[1] * before, *sizes, *[1] * after]
    viewed_steps = [*[1] * before, *steps, *[1] * after]
    over, strides = steps[-1] if steps else 1, []
    for size, step, whole in zip(reversed(viewed), reversed(viewed_steps), reversed(shape), strict=True):
        if size != 1:
            strides.append(step)
            over = size * step
        else:
            strides.append(over if whole == 1 else 0)
    return tuple(reversed(strides))


_SCALAR_OPERAND = Operand((), ())
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
_NOT_SINGLE_ITERATION = frozenset({_ATEN.masked_fill.Scalar})
_UNWRAPPED_SCALARS = frozenset({_ATEN.pow.Tensor_Scalar, _ATEN.lerp.Scalar})
"""Overloads for numbers that do not convert the number to a 0-d tensor before the iteration."""
_VIEW = _ATEN.view.default
_AS_STRIDED = _ATEN.as_strided.default
_ALL_RESULTS = frozenset({_ATEN.log_sigmoid_forward.default})
"""Operators whose rule applies to all of their results."""
_RULES: dict[Any, Rule] = {
    _ATEN.index.Tensor: _indexed,
    _ATEN.angle.default: _angle,
    _ATEN.roll.default: _rolled,
    _VIEW: _viewed,
    _ATEN.native_group_norm.default: _group_norm,
    _ATEN.native_layer_norm.default: _contiguous,
    **dict.fromkeys((_ATEN.floor_divide.default, _ATEN.native_dropout_backward.default), _elementwise),
    **dict.fromkeys((_ATEN.index_fill.int_Scalar, _ATEN.index_fill.int_Tensor), _preserves_layout_of(0)),
    _ATEN.binary_cross_entropy_backward.default: _preserves_layout_of(1),
    **dict.fromkeys(
        (
            _ATEN._batch_norm_with_update.default,
            _ATEN._batch_norm_with_update_functional.default,
            _ATEN._native_batch_norm_legit.default,
            _ATEN._native_batch_norm_legit_functional.default,
            _ATEN._native_batch_norm_legit.no_stats,
            _ATEN._native_batch_norm_legit_no_training.default,
            _ATEN.native_batch_norm.default,
        ),
        _batch_norm,
    ),
    **dict.fromkeys(
        (
            _ATEN.channel_shuffle.default,
            _ATEN.max_unpool2d.default,
            _ATEN.reflection_pad2d.default,
            _ATEN.reflection_pad3d.default,
            _ATEN.replication_pad2d.default,
            _ATEN.replication_pad3d.default,
        ),
        _channels_last_if(0),
    ),
    **dict.fromkeys(
        (
            _ATEN.reflection_pad2d_backward.default,
            _ATEN.reflection_pad3d_backward.default,
            _ATEN.replication_pad2d_backward.default,
            _ATEN.replication_pad3d_backward.default,
        ),
        _channels_last_if(1),
    ),
    **dict.fromkeys(
        (
            _ATEN._log_softmax.default,
            _ATEN._log_softmax_backward_data.default,
            _ATEN._softmax.default,
            _ATEN._softmax_backward_data.default,
            _ATEN.grid_sampler_2d.default,
            _ATEN.grid_sampler_3d.default,
            _ATEN.huber_loss_backward.default,
            _ATEN.log_sigmoid_forward.default,
            _ATEN.max_unpool3d.default,
            _ATEN.mse_loss_backward.default,
            _ATEN.mvlgamma.default,
            _ATEN.normal.Tensor_Tensor,
            _ATEN.normal.Tensor_float,
            _ATEN.normal.float_Tensor,
            _ATEN.pow.Scalar,
            _ATEN.reflection_pad1d.default,
            _ATEN.reflection_pad1d_backward.default,
            _ATEN.replication_pad1d.default,
            _ATEN.replication_pad1d_backward.default,
            _ATEN.rrelu_with_noise.default,
            _ATEN.rrelu_with_noise_functional.default,
            _ATEN.smooth_l1_loss_backward.default,
        ),
        _contiguous,
    ),
}
