"""Trace ``flex_attention`` as the operators that eager runs, or as one operator for a compiler's kernels.

The node holds two graphs, ``score_mod`` and ``mask_mod``, each for a single score. The first form computes as
eager does: it multiplies query and key in float32 (float64 for float64), applies both graphs to all scores
with ``torch.vmap``, and normalises with a softmax. A query without visible keys gets zeros. Autograd and
later fusion see ordinary operators.

The second form (``AotOptions.whole_attention``) keeps attention as one operator, and its gradients as another
(``fxstack_interchange.operators.attention_operators``), for kernels that never hold all scores in memory.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch import Tensor
from torch.autograd.function import once_differentiable

from fxstack_functionalize.tracer.aten_tracer import AtenTracer
from fxstack_interchange.operators.attention import (
    Attention,
    Operand,
    UnsupportedModifierError,
    trace_attention,
)
from fxstack_interchange.operators.attention_operators import attention_operator, buffers_with_gradients
from fxstack_interchange.operators.dense_attention import dense_attention, vectorize_over_scores

Modifier = Callable[..., Tensor]

RECOMPUTE_TAG = "must_recompute"
WHOLE_DTYPES = frozenset({torch.float32, torch.bfloat16, torch.float16})
TABLES = 8
"""The number of tensors of a block mask that say which blocks are visible."""


def flex_attention(  # noqa: PLR0917 - the operator's own signature
    tracer: AtenTracer,
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
    """Return (attention, base-2 logarithms of each query's sum of exponentials, each query's largest score in
    units of ln 2).

    ``query``: (B, Hq, L, E); ``key``: (B or 1, Hkv, S, E) with Hkv a divisor of Hq; ``value``: (B or 1, Hkv,
    S, Ev).
    """
    shared = (*score_buffers, *mask_buffers)
    if query.device.type in tracer.whole_attention:
        buffers = (score_buffers, mask_buffers)
        results = _whole((query, key, value), score_mod, block_mask, scale, buffers)
        if results is not None:
            return results
    tracer.tag(RECOMPUTE_TAG)
    score = vectorize_over_scores(score_mod, 1, len(score_buffers))
    mask = vectorize_over_scores(block_mask[-1], 0, len(mask_buffers))
    with torch.autocast(query.device.type, enabled=False):
        return dense_attention(
            query,
            key,
            value,
            lambda scores, *where: score(scores, *where, *shared[: len(score_buffers)]),
            lambda *where: mask(*where, *mask_buffers),
            scale,
        )


def _whole(
    inputs: tuple[Tensor, Tensor, Tensor],
    score_mod: Modifier,
    block_mask: tuple[Any, ...],
    scale: float,
    buffers: tuple[Sequence[Any], Sequence[Any]],
) -> tuple[Tensor, Tensor, Tensor] | None:
    """Return attention by the one operator.

    Return None if the operator does not take these dtypes or buffers, or if ``trace_attention`` refuses
    ``score_mod`` or ``mask_mod``. An example is a function that calls an operator whose result is not a 0-d
    tensor.
    """
    query, key, value = inputs
    shared = list({id(x): x for of_function in buffers for x in of_function}.values())
    tensors = [x for x in shared if isinstance(x, Tensor)]
    numbers = [x for x in shared if not isinstance(x, Tensor)]
    if query.dtype not in WHOLE_DTYPES or {key.dtype, value.dtype} != {query.dtype}:
        return None
    if not all(isinstance(x, (int, torch.SymInt)) for x in numbers):
        return None
    order = {id(x): k for k, x in enumerate((*tensors, *numbers))}
    of_scores, of_mask = ([order[id(x)] for x in of_function] for of_function in buffers)
    tables, blocks = _tables(block_mask)
    try:
        attention = trace_attention(
            score_mod,
            block_mask[-1],
            operand_positions=(of_scores, of_mask),
            buffers=[Operand(x.dim(), x.dtype, _wants_gradient(x)) for x in tensors],
            numbers=len(numbers),
            device=query.device,
            scale=scale,
            blocks=blocks,
            gradients=any(_wants_gradient(x) for x in (*inputs, *tensors)),
        )
    except UnsupportedModifierError:
        return None
    tables = tables if attention.blocks else []
    results: tuple[Tensor, Tensor, Tensor]
    if attention.gradient is None:
        results = attention_operator(attention)(query, key, value, tables, tensors, numbers)
    else:
        results = _Attention.apply(attention, tables, numbers, query, key, value, *tensors)
    return results


def _wants_gradient(tensor: Tensor) -> bool:
    return bool(tensor.requires_grad) and torch.is_grad_enabled()


def _tables(block_mask: Sequence[Any]) -> tuple[list[Tensor], tuple[int, int] | None]:
    """Return (tensors, block sizes) of a block mask. Tables of fully visible blocks are optional.

    Return ([], None) if the mask has no tables by query, or has block sizes that are not integers.
    """
    _, _, *further = block_mask
    tables, sizes = further[:TABLES], tuple(further[TABLES : TABLES + 2])
    partial, full = [*tables[:2], *tables[4:6]], [*tables[2:4], *tables[6:8]]
    if any(x is None for x in partial) or not all(isinstance(x, int) for x in sizes):
        return [], None
    if all(x is None for x in full):
        return partial, sizes
    if any(x is None for x in full):
        return [], None
    return tables, sizes


class _Attention(torch.autograd.Function):
    """The attention operator. Its overload ``backward`` computes the gradient."""

    @staticmethod
    def forward(
        ctx: Any, attention: Attention, tables: list[Tensor], numbers: list[Any], *tensors: Tensor
    ) -> tuple[Tensor, Tensor, Tensor]:
        """Run the operator and save what ``backward`` needs."""
        query, key, value, *buffers = tensors
        operator = attention_operator(attention)
        out, sums, largest = operator(query, key, value, tables, buffers, numbers)
        ctx.mark_non_differentiable(largest)
        ctx.set_materialize_grads(False)
        ctx.attention, ctx.numbers, ctx.count = attention, numbers, len(tables)
        ctx.save_for_backward(*tables, *tensors, out, sums)
        return out, sums, largest

    @staticmethod
    @once_differentiable  # type: ignore[untyped-decorator]
    def backward(
        ctx: Any, grad_out: Tensor | None, grad_sums: Tensor | None, _largest: Any
    ) -> tuple[Any, ...]:
        """Return the gradients of query, key, value and of the buffers that have one.

        The first three results are for the arguments that are not tensors.
        """
        saved = ctx.saved_tensors
        tables, (query, key, value, *buffers, out, sums) = saved[: ctx.count], saved[ctx.count :]
        gradients = attention_operator(ctx.attention)._overloadpacket.backward(
            *(query, key, value, list(tables), buffers, ctx.numbers, out, sums),
            torch.zeros_like(out) if grad_out is None else grad_out,
            [] if grad_sums is None else [grad_sums],
        )
        gradient_of = dict(zip(buffers_with_gradients(ctx.attention), gradients[3:], strict=True))
        of_buffers = [gradient_of.get(k) for k in range(len(buffers))]
        return (None, None, None, *gradients[:3], *of_buffers)
