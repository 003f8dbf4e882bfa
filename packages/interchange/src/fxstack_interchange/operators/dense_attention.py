"""``flex_attention`` as ordinary operators on all scores, as eager computes it.

The algorithm is that of torch's ``math_attention`` and ``sdpa_dense_backward``
(``torch/_higher_order_ops/flex_attention.py``).
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor

from fxstack_interchange import torch_compat
from fxstack_interchange.operators.flex import POSITIONS, attention_strides

Modifier = Callable[..., Tensor]


def dense_attention(  # noqa: PLR0917 - the operator's own order
    query: Tensor, key: Tensor, value: Tensor, score_mod: Modifier, mask_mod: Modifier | None, scale: float
) -> tuple[Tensor, Tensor, Tensor]:
    """Return the attention, the base-2 logarithms of the sums, and the largest scores divided by ln 2.

    ``query``: (B, Hq, L, E); ``key``: (B or 1, Hkv, S, E) with Hkv a divisor of Hq; ``value``: (B or 1, Hkv,
    S, Ev). ``score_mod(scores, b, h, m, n)`` and ``mask_mod(b, h, m, n)`` take all scores and positions at
    once (see ``vectorize_over_scores``).
    """
    _, scores = dense_scores(query, key, score_mod, mask_mod, scale)
    weights = torch_compat.safe_softmax(scores, dim=-1)
    out = weights.to(query.dtype) @ for_each_query(value, query).to(query.dtype)
    return with_attention_strides(out, query), *_statistics(scores)


def dense_scores(
    query: Tensor, key: Tensor, score_mod: Modifier, mask_mod: Modifier | None, scale: float
) -> tuple[Tensor, Tensor]:
    """Return the scores before and after ``score_mod`` and ``mask_mod``."""
    precise = torch.float64 if query.dtype is torch.float64 else torch.float32
    key = for_each_query(key, query)
    scores = (query.to(precise) @ key.to(precise).transpose(-2, -1) * scale).to(precise)
    positions = ranges(scores)
    modified = score_mod(scores, *positions)
    if mask_mod is None:
        return scores, modified
    minus_infinity = torch.full((), -math.inf, dtype=precise, device=scores.device)
    return scores, torch.where(mask_mod(*positions), modified, minus_infinity)


def ranges(scores: Tensor) -> list[Tensor]:
    """Return the positions along each dimension of (B, H, L, S) ``scores``."""
    return [torch.arange(size, device=scores.device) for size in scores.shape]


def vectorize_over_scores(fn: Modifier, leading: int, trailing: int) -> Modifier:
    """Return ``fn``, a function of numbers, vectorised over all batches, heads, queries and keys.

    The result takes ``leading`` tensors of shape (B, H, L, S), then the four ranges of positions, then
    ``trailing`` tensors that all elements share.
    """
    for dim in reversed(range(POSITIONS)):
        in_dims: list[int | None] = [None] * POSITIONS
        in_dims[dim] = 0
        fn = torch.vmap(fn, in_dims=((0,) * leading + tuple(in_dims) + (None,) * trailing))
    return fn


def for_each_query(tensor: Tensor, query: Tensor) -> Tensor:
    """Expand keys or values to the batch and heads of ``query``."""
    groups = query.size(1) // tensor.size(1)
    if groups != 1:
        batch, heads, *rest = tensor.shape
        tensor = tensor.unsqueeze(2).expand(batch, heads, groups, *rest).flatten(1, 2)
    return tensor.expand(query.size(0), *tensor.shape[1:])


def _statistics(scores: Tensor) -> tuple[Tensor, Tensor]:
    """Return for each query the logarithm of its summed weights and its largest score, both to base 2.

    The logarithm is minus infinity for a query whose scores are all masked.
    """
    unseen = torch.all(scores == -math.inf, dim=-1)
    sums = torch.where(unseen, -math.inf, scores.logsumexp(dim=-1))
    return sums / math.log(2), torch.max(scores, dim=-1)[0] / math.log(2)


def with_attention_strides(out: Tensor, query: Tensor) -> Tensor:
    """Return ``out`` with the strides that eager's operator gives the result. Copy only if necessary."""
    strides = attention_strides(tuple(out.shape), _hints(query.stride()))
    if strides == out.stride():
        return out
    return out.new_empty_strided(out.shape, strides).copy_(out)


def _hints(sizes: tuple[Any, ...]) -> tuple[int, ...]:
    """Return the hints of symbolic numbers.

    This adds no guard, because capture guarded the order of the strides when it recorded the node.
    """
    return tuple(size.node.hint if isinstance(size, torch.SymInt) else size for size in sizes)
