"""Sizes that eager's kernels reject, but torch's fake kernels accept.

Most of these fake kernels broadcast the sizes. A rule returns whether eager rejects a call. The caller then
repeats the call on zeros to get eager's own exception. A comparison of symbolic sizes adds a guard. A
comparison that depends on tensor data is assumed to pass.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch import Tensor
from torch.fx.experimental.symbolic_shapes import guard_or_false

_ATEN = torch.ops.aten
_MASKS = (torch.bool, torch.uint8)


class RefusedSizesError(RuntimeError):
    """Raised if eager rejects the sizes of a call that the fake kernels accept."""


def check_sizes(func: object, args: Sequence[Any]) -> None:
    """Raise ``RefusedSizesError`` if the rule of ``func`` rejects the sizes of ``func(*args)``."""
    if SIZE_RULES[func](*args):
        message = f"sizes that {func} does not take"
        raise RefusedSizesError(message)


def _differ(sizes: Sequence[Any], others: Sequence[Any]) -> bool:
    """Return whether two lists of sizes certainly differ."""
    return len(sizes) != len(others) or any(
        guard_or_false(a != b) for a, b in zip(sizes, others, strict=True)
    )


def _does_not_expand(sizes: Sequence[Any], to: Sequence[Any]) -> bool:
    """Return whether a tensor with ``sizes`` cannot be expanded to the sizes ``to``."""
    shift = len(to) - len(sizes)
    return shift < 0 or any(
        guard_or_false(old != 1) and guard_or_false(old != new)
        for old, new in zip(sizes, to[shift:], strict=True)
    )


def _rule_of_scatter(view: Callable[..., Tensor]) -> Callable[..., bool]:
    """Return a rule: the scattered tensor must have the sizes of the view that it replaces."""
    return lambda x, source, *where: _differ(source.shape, view(x, *where).shape)


def _without(sizes: Sequence[Any], dim: int) -> list[Any]:
    """Return ``sizes`` without the dimension ``dim``, which may be negative."""
    at = dim % len(sizes) if sizes else 0
    return [*sizes[:at], *sizes[at + 1 :]]


def _has_wrong_rows(x: Tensor, dim: int, _index: Tensor, source: Tensor, *_: object) -> bool:
    """Return whether the size of the added or copied rows differs from the size of the target's rows."""
    if not -x.dim() <= dim < x.dim() or not source.dim():
        return False
    return _differ(_without(x.shape, dim), _without(source.shape, dim))


def _has_wrong_put(x: Tensor, indices: Sequence[Tensor | None], values: Tensor, *_: object) -> bool:
    """Return whether ``values`` cannot be expanded to the elements that ``indices`` select."""
    at = [dim for dim, index in enumerate(indices) if index is not None]
    indexing = [index for index in indices if index is not None]
    if not indexing or any(index.dtype in _MASKS for index in indexing) or at[-1] >= x.dim():
        return False
    shape = torch.broadcast_shapes(*(index.shape for index in indexing))
    adjacent = at[-1] - at[0] + 1 == len(at)
    before = list(x.shape[: at[0]]) if adjacent else []
    after = [n for dim, n in enumerate(x.shape) if dim not in at and not (adjacent and dim < at[0])]
    return _does_not_expand(values.shape, [*before, *shape, *after])


def _has_wrong_mask(x: Tensor, indices: Sequence[Tensor | None]) -> bool:
    """Return whether a mask and the dimensions that it indexes differ in size."""
    dim = 0
    for index in indices:
        if index is not None and index.dtype in _MASKS:
            if _differ(index.shape, x.shape[dim : dim + index.dim()]):
                return True
            dim += index.dim()
        else:
            dim += 1
    return False


def _has_wrong_index(x: Tensor, _dim: int, index: Tensor) -> bool:
    """Return whether the index of ``index_select`` is no vector, or has several items although ``x`` is a
    scalar.
    """
    return index.dim() > 1 or (not x.dim() and guard_or_false(index.numel() != 1))


def _has_wrong_broadcast(x: Tensor, target: Tensor, *_: object) -> bool:
    """Return whether the broadcast sizes differ from those of the first argument, which gives the size of the
    result.
    """
    return _differ(torch.broadcast_shapes(x.shape, target.shape), x.shape)


def _has_wrong_target(x: Tensor, target: Tensor, weight: Tensor | None = None, *_: object) -> bool:
    """Return whether the spatial sizes of the target of ``nll_loss2d`` differ from those of the input."""
    if x.dim() != 4 or target.dim() != 3:
        return False
    unweighted = weight is None or not guard_or_false(weight.numel() != x.shape[1])
    return not unweighted or _differ(target.shape, _without(x.shape, 1))


def _has_empty_size(x: Tensor, sizes: Sequence[Any], *_: object) -> bool:
    """Return whether the result of an upsampling has a size that is not positive. Only the batch may be
    empty.
    """
    return any(guard_or_false(n <= 0) for n in (*x.shape[1:], *sizes))


SIZE_RULES: dict[Any, Callable[..., bool]] = {
    _ATEN.slice_scatter.default: _rule_of_scatter(_ATEN.slice.Tensor),
    _ATEN.select_scatter.default: _rule_of_scatter(_ATEN.select.int),
    _ATEN.diagonal_scatter.default: _rule_of_scatter(_ATEN.diagonal.default),
    _ATEN.as_strided_scatter.default: _rule_of_scatter(_ATEN.as_strided.default),
    _ATEN.soft_margin_loss.default: _has_wrong_broadcast,
    _ATEN.nll_loss2d_forward.default: _has_wrong_target,
    _ATEN.index.Tensor: _has_wrong_mask,
    _ATEN.index_select.default: _has_wrong_index,
    **{getattr(_ATEN, f"index_put{suffix}").default: _has_wrong_put for suffix in ("", "_")},
    **{
        getattr(_ATEN, f"index_{name}{suffix}").default: _has_wrong_rows
        for name in ("add", "copy", "reduce")
        for suffix in ("", "_")
    },
    **{
        getattr(_ATEN, f"{name}d").default: _has_empty_size
        for name in (
            *("upsample_nearest1", "upsample_nearest2", "upsample_nearest3", "upsample_linear1"),
            *("_upsample_nearest_exact1", "_upsample_nearest_exact2", "_upsample_nearest_exact3"),
            *("upsample_bilinear2", "upsample_bicubic2", "upsample_trilinear3"),
        )
    },
}
