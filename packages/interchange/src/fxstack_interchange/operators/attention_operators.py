"""One operator for each attention (``Attention``).

The default overload computes the results. The overload ``backward`` computes the gradients.

A compiler that has attention kernels calls ``attention_of`` to get the graphs of an operator. If torch runs
the operator itself, the operator computes all scores, as eager does.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any, Final

import torch
from torch import Tensor

from fxstack_interchange.operators.attention import Attention
from fxstack_interchange.operators.dense_attention import (
    dense_attention,
    dense_scores,
    for_each_query,
    ranges,
    vectorize_over_scores,
    with_attention_strides,
)
from fxstack_interchange.operators.flex import POSITIONS
from fxstack_interchange.torch_compat import OpOverload

NAMESPACE = "fxstack_attention"
SCHEMA = "Tensor query, Tensor key, Tensor value, Tensor[] blocks, Tensor[] buffers, SymInt[] numbers"
BACKWARD = "Tensor out, Tensor sums, Tensor grad_out, Tensor[] grad_sums"

# Registrations stay for the life of the process, as torch.library's registrations do, because graphs refer to
# the operators.
_LIBRARY: Final = torch.library.Library(NAMESPACE, "FRAGMENT")
_BY_KEY: Final[dict[str, OpOverload]] = {}
_ATTENTIONS: Final[dict[str, Attention]] = {}


def attention_operator(attention: Attention) -> OpOverload:
    """Return the operator of ``attention``. Define it if it does not exist yet.

    The operator maps ``(query, key, value, blocks, buffers, numbers)`` to the results of the
    ``flex_attention`` operator. ``blocks`` are the tensors of a block mask: counts and indices of key blocks,
    the same for full key blocks if the mask has them, and the corresponding tensors of query blocks.

    The overload ``backward`` takes the arguments of the forward, its first two results and their gradients.
    The gradient of the second result may be missing. The overload returns the gradients of query, key, value
    and of each buffer that ``Attention.additions`` mentions.
    """
    key = attention.key
    if key not in _BY_KEY:
        _BY_KEY[key] = _define(attention, f"flex_{key}")
    return _BY_KEY[key]


def attention_of(target: object) -> tuple[Attention, bool] | None:
    """Return the attention of an operator, and whether the operator is the backward.

    Return None for every other callable.
    """
    schema = getattr(target, "_schema", None)
    attention = None if schema is None else _ATTENTIONS.get(schema.name)
    return None if attention is None else (attention, str(target).endswith(".backward"))


def _define(attention: Attention, name: str) -> OpOverload:
    """Define the operator of one attention, with its backward as an overload. Return the forward overload."""
    tensors = ", ".join(["Tensor"] * (3 + len(buffers_with_gradients(attention))))
    _LIBRARY.define(f"{name}({SCHEMA}) -> (Tensor, Tensor, Tensor)")
    _LIBRARY.define(f"{name}.backward({SCHEMA}, {BACKWARD}) -> ({tensors})")
    _ATTENTIONS[f"{NAMESPACE}::{name}"] = attention
    _implement(name, _fake, _forward(attention))
    _implement(f"{name}.backward", _fake_backward(attention), _backward(attention))
    operator: OpOverload = getattr(getattr(torch.ops, NAMESPACE), name).default
    return operator


def _implement(name: str, fake: Callable[..., Any], real: Callable[..., Any]) -> None:
    torch.library.register_fake(f"{NAMESPACE}::{name}", fake, lib=_LIBRARY)
    _LIBRARY.impl(name, real, "CompositeExplicitAutograd")


def buffers_with_gradients(attention: Attention) -> tuple[int, ...]:
    """Return the positions of the buffers that have gradients."""
    return tuple(sorted({addition.buffer for addition in attention.additions}))


# --- fake kernels --------------------------------------------------------------------------------


def _fake(
    query: Tensor, _key: Tensor, value: Tensor, _blocks: object, _buffers: object, _numbers: object
) -> tuple[Tensor, Tensor, Tensor]:
    """Return empty results of the forward, for tracing: the output, the sums and the largest scores."""
    shape = (*query.shape[:-1], value.size(-1))
    out = with_attention_strides(query.new_empty(shape), query)
    sums, largest = (query.new_empty(shape[:-1], dtype=torch.float32) for _ in range(2))
    return out, sums, largest


def _fake_backward(attention: Attention) -> Callable[..., tuple[Tensor, ...]]:
    """Return the fake kernel of the backward."""

    def fake(query: Tensor, key: Tensor, value: Tensor, _blocks: object, buffers: Any, *_: object) -> Any:
        """Return empty gradients of query, key, value and of the buffers that have one."""
        gradients = [with_attention_strides(x.new_empty(x.shape), x) for x in (query, key, value)]
        return (
            *gradients,
            *(buffers[k].new_empty(buffers[k].shape) for k in buffers_with_gradients(attention)),
        )

    return fake


# --- eager kernels -------------------------------------------------------------------------------


def _forward(attention: Attention) -> Callable[..., tuple[Tensor, Tensor, Tensor]]:
    """Return the eager kernel of the forward, which computes all scores at once."""

    def run(
        query: Tensor, key: Tensor, value: Tensor, _blocks: Any, buffers: Any, numbers: Any
    ) -> tuple[Tensor, Tensor, Tensor]:
        functions = _vectorized_modifiers(attention, _shared(query, buffers, numbers))
        return dense_attention(query, key, value, *functions, attention.scale)

    return run


def _vectorized_modifiers(attention: Attention, shared: Sequence[Tensor]) -> tuple[Any, Any]:
    """Return the score modifier and the mask as functions of all scores; None in place of a missing mask.

    ``shared``: the buffers and numbers, which are equal for all scores.
    """
    score = vectorize_over_scores(attention.score, 1, len(shared))
    mask = None if attention.mask is None else vectorize_over_scores(attention.mask, 0, len(shared))
    masked = None if mask is None else (lambda *where: mask(*where, *shared))
    return (lambda scores, *where: score(scores, *where, *shared)), masked


def _shared(query: Tensor, buffers: Sequence[Tensor], numbers: Sequence[int]) -> list[Tensor]:
    return [*buffers, *(torch.full((), n, dtype=torch.int64, device=query.device) for n in numbers)]


def _backward(attention: Attention) -> Callable[..., tuple[Tensor, ...]]:
    """Return the eager kernel of the backward, which computes all scores again."""

    def run(  # noqa: PLR0917 - the operator's signature
        query: Tensor, key: Tensor, value: Tensor, _blocks: Any, buffers: Any, numbers: Any,
        out: Tensor, sums: Tensor, grad_out: Tensor, grad_sums: Sequence[Tensor],
    ) -> tuple[Tensor, ...]:  # fmt: skip
        """Return the gradients of query, key, value and of the buffers that have one."""
        shared = _shared(query, buffers, numbers)
        score_mod, mask_mod = _vectorized_modifiers(attention, shared)
        scores, modified_scores = dense_scores(query, key, score_mod, mask_mod, attention.scale)
        # The sums are logarithms to base 2.
        weights = torch.exp(modified_scores - (sums * math.log(2)).unsqueeze(-1))
        # A row without visible keys has the sum -inf; its weights would be NaN.
        weights = torch.where((sums == -math.inf).unsqueeze(-1), 0, weights)
        values = for_each_query(value, query).float()
        delta = (out.float() * grad_out.float()).sum(-1, keepdim=True)
        for grad in grad_sums:
            delta = delta - grad.unsqueeze(-1) / math.log(2)
        inner = weights * (grad_out.float() @ values.transpose(-2, -1) - delta)
        first, *parts = _gradients(attention, scores, inner, shared)
        score_gradients = (first * attention.scale).to(query.dtype)
        if mask_mod is not None:
            score_gradients = torch.where(mask_mod(*ranges(scores)), score_gradients, 0)
        gradients = (
            score_gradients @ for_each_query(key, query),
            _sum_to_shape(score_gradients.transpose(-2, -1) @ query, key),
            _sum_to_shape(weights.to(query.dtype).transpose(-2, -1) @ grad_out, value),
        )
        results = (
            with_attention_strides(x, like) for x, like in zip(gradients, (query, key, value), strict=True)
        )
        return (*results, *_apply_additions(attention, parts, buffers))

    return run


def _gradients(
    attention: Attention, scores: Tensor, inner: Tensor, shared: Sequence[Tensor]
) -> tuple[Tensor, ...]:
    """Return the gradients of all scores, then the parts that ``_apply_additions`` adds to the buffers' gradients.

    ``inner``: the gradients of the modified scores.
    """
    graph = attention.gradient
    assert graph is not None

    def gradient_of_score(score: Tensor, grad: Tensor, *rest: Tensor) -> Any:
        return graph(score, *rest[:POSITIONS], grad, *rest[POSITIONS:])

    results = vectorize_over_scores(gradient_of_score, 2, len(shared))(
        scores, inner, *ranges(scores), *shared
    )
    return tuple(results)


def _sum_to_shape(grad: Tensor, like: Tensor) -> Tensor:
    """Sum the gradients of query heads and batches to the heads and batches of the keys or values."""
    batch, heads = like.shape[:2]
    grad = grad.view(grad.size(0), heads, -1, *grad.shape[2:]).sum(2)
    return grad.sum(0, keepdim=True) if batch != grad.size(0) else grad


def _apply_additions(
    attention: Attention, parts: Sequence[Tensor], buffers: Sequence[Tensor]
) -> list[Tensor]:
    """Return the gradients of the buffers: zeros, plus the parts at their indices."""
    gradients = {
        k: torch.zeros_like(buffers[k], memory_format=torch.contiguous_format)
        for k in buffers_with_gradients(attention)
    }
    remaining = iter(parts)
    for addition in attention.additions:
        indices = [next(remaining) for _ in range(addition.indices)]
        value = next(remaining).to(gradients[addition.buffer].dtype)
        target = gradients[addition.buffer]
        if indices:
            target.index_put_(tuple(indices), value, accumulate=True)
        else:
            target.add_(value.sum())
    return list(gradients.values())
