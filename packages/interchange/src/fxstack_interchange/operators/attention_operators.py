"""The operators of attentions.

The default overload computes the results, the overload ``backward`` the gradients.

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
    laid_out,
    over_all,
    ranges,
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
    found = None if schema is None else _ATTENTIONS.get(schema.name)
    return None if found is None else (found, str(target).endswith(".backward"))


def _define(attention: Attention, name: str) -> OpOverload:
    tensors = ", ".join(["Tensor"] * (3 + len(changed(attention))))
    _LIBRARY.define(f"{name}({SCHEMA}) -> (Tensor, Tensor, Tensor)")
    _LIBRARY.define(f"{name}.backward({SCHEMA}, {BACKWARD}) -> ({tensors})")
    _ATTENTIONS[f"{NAMESPACE}::{name}"] = attention
    _implement(name, _fake, _forward(attention))
    _implement(f"{name}.backward", _fake_backward(attention), _backward(attention))
    found: OpOverload = getattr(getattr(torch.ops, NAMESPACE), name).default
    return found


def _implement(name: str, fake: Callable[..., Any], real: Callable[..., Any]) -> None:
    torch.library.register_fake(f"{NAMESPACE}::{name}", fake, lib=_LIBRARY)
    _LIBRARY.impl(name, real, "CompositeExplicitAutograd")


def changed(attention: Attention) -> tuple[int, ...]:
    """Return the positions of the buffers that have gradients."""
    return tuple(sorted({addition.buffer for addition in attention.additions}))


# --- fake kernels --------------------------------------------------------------------------------


def _fake(
    query: Tensor, _key: Tensor, value: Tensor, _blocks: object, _buffers: object, _numbers: object
) -> tuple[Tensor, Tensor, Tensor]:
    shape = (*query.shape[:-1], value.size(-1))
    out = laid_out(query.new_empty(shape), query)
    sums, largest = (query.new_empty(shape[:-1], dtype=torch.float32) for _ in range(2))
    return out, sums, largest


def _fake_backward(attention: Attention) -> Callable[..., tuple[Tensor, ...]]:
    def fake(query: Tensor, key: Tensor, value: Tensor, _blocks: object, buffers: Any, *_: object) -> Any:
        made = [laid_out(x.new_empty(x.shape), x) for x in (query, key, value)]
        return (*made, *(buffers[k].new_empty(buffers[k].shape) for k in changed(attention)))

    return fake


# --- eager kernels -------------------------------------------------------------------------------


def _forward(attention: Attention) -> Callable[..., tuple[Tensor, Tensor, Tensor]]:
    def run(
        query: Tensor, key: Tensor, value: Tensor, _blocks: Any, buffers: Any, numbers: Any
    ) -> tuple[Tensor, Tensor, Tensor]:
        functions = _functions(attention, _shared(query, buffers, numbers))
        return dense_attention(query, key, value, *functions, attention.scale)

    return run


def _functions(attention: Attention, shared: Sequence[Tensor]) -> tuple[Any, Any]:
    score = over_all(attention.score, 1, len(shared))
    mask = None if attention.mask is None else over_all(attention.mask, 0, len(shared))
    seen = None if mask is None else (lambda *where: mask(*where, *shared))
    return (lambda scores, *where: score(scores, *where, *shared)), seen


def _shared(query: Tensor, buffers: Sequence[Tensor], numbers: Sequence[int]) -> list[Tensor]:
    return [*buffers, *(torch.full((), n, dtype=torch.int64, device=query.device) for n in numbers)]


def _backward(attention: Attention) -> Callable[..., tuple[Tensor, ...]]:
    def run(  # noqa: PLR0917 - the operator's signature
        query: Tensor, key: Tensor, value: Tensor, _blocks: Any, buffers: Any, numbers: Any,
        out: Tensor, sums: Tensor, grad_out: Tensor, grad_sums: Sequence[Tensor],
    ) -> tuple[Tensor, ...]:  # fmt: skip
        shared = _shared(query, buffers, numbers)
        score_mod, mask_mod = _functions(attention, shared)
        scores, changed_ = dense_scores(query, key, score_mod, mask_mod, attention.scale)
        weights = torch.exp(changed_ - (sums * math.log(2)).unsqueeze(-1))
        weights = torch.where((sums == -math.inf).unsqueeze(-1), 0, weights)
        values = for_each_query(value, query).float()
        delta = (out.float() * grad_out.float()).sum(-1, keepdim=True)
        for grad in grad_sums:
            delta = delta - grad.unsqueeze(-1) / math.log(2)
        inner = weights * (grad_out.float() @ values.transpose(-2, -1) - delta)
        first, *parts = _gradients(attention, scores, inner, shared)
        of_scores = (first * attention.scale).to(query.dtype)
        if mask_mod is not None:
            of_scores = torch.where(mask_mod(*ranges(scores)), of_scores, 0)
        made = (
            of_scores @ for_each_query(key, query),
            _collected(of_scores.transpose(-2, -1) @ query, key),
            _collected(weights.to(query.dtype).transpose(-2, -1) @ grad_out, value),
        )
        laid = (laid_out(x, like) for x, like in zip(made, (query, key, value), strict=True))
        return (*laid, *_added(attention, parts, buffers))

    return run


def _gradients(
    attention: Attention, scores: Tensor, inner: Tensor, shared: Sequence[Tensor]
) -> tuple[Tensor, ...]:
    graph = attention.gradient
    assert graph is not None

    def of_both(score: Tensor, grad: Tensor, *rest: Tensor) -> Any:
        return graph(score, *rest[:POSITIONS], grad, *rest[POSITIONS:])

    found = over_all(of_both, 2, len(shared))(scores, inner, *ranges(scores), *shared)
    return tuple(found)


def _collected(grad: Tensor, like: Tensor) -> Tensor:
    """Sum the gradients of query heads and batches to the heads and batches of the keys or values."""
    batch, heads = like.shape[:2]
    grad = grad.view(grad.size(0), heads, -1, *grad.shape[2:]).sum(2)
    return grad.sum(0, keepdim=True) if batch != grad.size(0) else grad


def _added(attention: Attention, parts: Sequence[Tensor], buffers: Sequence[Tensor]) -> list[Tensor]:
    made = {
        k: torch.zeros_like(buffers[k], memory_format=torch.contiguous_format) for k in changed(attention)
    }
    remaining = iter(parts)
    for addition in attention.additions:
        indices = [next(remaining) for _ in range(addition.indices)]
        value = next(remaining).to(made[addition.buffer].dtype)
        target = made[addition.buffer]
        if indices:
            target.index_put_(tuple(indices), value, accumulate=True)
        else:
            target.add_(value.sum())
    return list(made.values())
