"""``flex_attention`` taken apart: the operators that eager runs for it.

The node holds two graphs over single numbers, ``score_mod`` and ``mask_mod``. Like eager, this multiplies query and key in
float32 (float64 for float64), applies both graphs to all scores at once with ``torch.vmap``, and normalises with a softmax in
which a query that may see nothing gets zeros. Autograd, and fusion later on, see ordinary operators.

The algorithm is that of torch's ``math_attention`` (``torch/_higher_order_ops/flex_attention.py``).
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor

from fxstack_interchange.flex import attention_strides

if TYPE_CHECKING:
    from collections.abc import Callable

    from torch.fx import Graph

    Modifier = Callable[..., Tensor]

_POSITIONS = 4
"""Batch, head, query and key, in this order."""


def flex_attention(  # noqa: PLR0917 - the operator's own signature
    _graph: Graph,
    query: Tensor,
    key: Tensor,
    value: Tensor,
    score_mod: Modifier,
    block_mask: tuple[Any, ...],
    scale: float,
    _kernel_options: dict[str, Any],
    score_buffers: tuple[Any, ...] = (),
    mask_buffers: tuple[Any, ...] = (),
) -> tuple[Tensor, Tensor, Tensor]:
    """Attention, the base-2 logarithms of the sums, and the largest scores in units of ln 2.

    ``query``: (B, Hq, L, E); ``key``: (B or 1, Hkv, S, E) with Hkv a divisor of Hq; ``value``: (B or 1, Hkv, S, Ev).
    """
    with torch.autocast(query.device.type, enabled=False):
        key, value = (_for_each_query(x, query) for x in (key, value))
        precise = torch.float64 if query.dtype is torch.float64 else torch.float32
        scores = (query.to(precise) @ key.to(precise).transpose(-2, -1) * scale).to(precise)
        positions = [torch.arange(size, device=scores.device) for size in scores.shape]
        seen = _over_all(block_mask[-1], 0, len(mask_buffers))(*positions, *mask_buffers)
        changed = _over_all(score_mod, 1, len(score_buffers))(scores, *positions, *score_buffers)
        nothing = torch.full((), -math.inf, dtype=precise, device=scores.device)
        scores = torch.where(seen, changed, nothing)
        weights = torch._safe_softmax(scores, dim=-1)
        out = weights.to(query.dtype) @ value.to(query.dtype)
        return _laid_out(out, query), *_statistics(scores)


def _for_each_query(tensor: Tensor, query: Tensor) -> Tensor:
    """Keys or values, once for each head and batch of queries."""
    groups = query.size(1) // tensor.size(1)
    if groups != 1:
        batch, heads, *rest = tensor.shape
        tensor = tensor.unsqueeze(2).expand(batch, heads, groups, *rest).flatten(1, 2)
    return tensor.expand(query.size(0), *tensor.shape[1:])


def _over_all(fn: Modifier, leading: int, trailing: int) -> Modifier:
    """``fn`` of numbers as a function of (B, H, L, S) scores, if ``leading``, and the four ranges of positions."""
    for dim in reversed(range(_POSITIONS)):
        where = [None] * _POSITIONS
        where[dim] = 0  # type: ignore[call-overload]
        fn = torch.vmap(fn, in_dims=((0,) * leading + tuple(where) + (None,) * trailing))
    return fn


def _statistics(scores: Tensor) -> tuple[Tensor, Tensor]:
    unseen = torch.all(scores == -math.inf, dim=-1)
    sums = torch.where(unseen, -math.inf, scores.logsumexp(dim=-1))
    return sums / math.log(2), torch.max(scores, dim=-1)[0] / math.log(2)


def _laid_out(out: Tensor, query: Tensor) -> Tensor:
    strides = attention_strides(tuple(out.shape), _hints(query.stride()))
    if strides == out.stride():
        return out
    return out.new_empty_strided(out.shape, strides).copy_(out)


def _hints(sizes: tuple[Any, ...]) -> tuple[int, ...]:
    """Symbolic numbers as they were seen; their order is guarded where the node was written down."""
    return tuple(size.node.hint if isinstance(size, torch.SymInt) else size for size in sizes)
