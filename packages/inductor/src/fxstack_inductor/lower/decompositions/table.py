"""The decompositions that earlier stages should apply before this package sees the graph.

The table is torch's core ATen table without two groups of operators. The first group has lowering rules here
(layer norm, softmax, gelu, ...). For the second group, one ATen kernel is the fastest, or the only exact one:
matrix products, convolutions, attention, random numbers, and operators whose decomposition needs several
passes over memory.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import cache
from typing import Any

import torch

from fxstack_inductor.lower.decompositions.convolution_bias import convolution, convolution_backward
from fxstack_inductor.lower.decompositions.foreach import foreach_rules
from fxstack_inductor.lower.rules import RULES
from fxstack_inductor.torch_compat import core_aten_decompositions, decomposition_table
from fxstack_inductor.torch_compat import disable_current_modes as _disable_current_modes

_KEPT = """
    native_dropout bernoulli rand rand_like randn randn_like randint randint_like randperm normal normal_ uniform uniform_
    multinomial exponential rrelu_with_noise
    mm addmm bmm baddbmm addbmm addmv mv dot vdot convolution convolution_backward
    _scaled_dot_product_flash_attention_for_cpu _scaled_dot_product_flash_attention_for_cpu_backward
    lstm gru _thnn_fused_lstm_cell
    upsample_bilinear2d upsample_bicubic2d upsample_linear1d upsample_trilinear3d upsample_bilinear2d_backward
    upsample_nearest1d upsample_nearest2d upsample_nearest3d
    _upsample_nearest_exact1d _upsample_nearest_exact2d _upsample_nearest_exact3d
    _upsample_bilinear2d_aa _upsample_bicubic2d_aa grid_sampler_2d grid_sampler_2d_backward
    max_pool2d_with_indices max_pool2d_with_indices_backward avg_pool2d avg_pool2d_backward
    _adaptive_avg_pool2d _adaptive_avg_pool2d_backward max_unpool2d max_unpool3d im2col col2im
    reflection_pad1d reflection_pad2d reflection_pad3d replication_pad1d replication_pad2d replication_pad3d
    cumsum cumprod logcumsumexp trace unfold_backward _cdist_forward _cdist_backward multilabel_margin_loss_forward
    embedding_dense_backward _unsafe_index _unsafe_index_put isin bucketize searchsorted
"""
KEEP_PACKETS = frozenset(_KEPT.split())
"""Operators that stay ATen calls although torch could decompose them."""


aten = torch.ops.aten


def binary_cross_entropy(
    x: torch.Tensor, target: torch.Tensor, weight: torch.Tensor | None = None, reduction: int = 1
) -> torch.Tensor:
    """Apply torch's decomposition, and on CPU the range check that eager makes."""
    if x.device.type == "cpu":
        for name, tensor in (("input", x), ("target", target)):
            inside = ((tensor >= 0) & (tensor <= 1)).all()
            aten._assert_async.msg(inside, f"all elements of {name} should be between 0 and 1")
    loss = decomposition_table[aten.binary_cross_entropy.default]
    result: torch.Tensor = loss(x, target, weight, reduction)
    return result


def logit(x: torch.Tensor, eps: float | None = None) -> torch.Tensor:
    """Apply torch's decomposition with bounds in the tensor's precision: ``1 - 0.001`` is 1 in bfloat16."""
    if eps is not None and x.dtype.is_floating_point:
        with _disable_current_modes():
            low = torch.tensor(eps, dtype=x.dtype, device="cpu")
            least, most = low.item(), (1 - low).item()
        x = torch.where(x < least, least, torch.where(x > most, most, x))
        eps = None
    result: torch.Tensor = decomposition_table[aten.logit.default](x, eps)
    return result


OWN: dict[Any, Callable[..., Any]] = {
    # A training step then saves the maximum and the logarithm of the sum of each row, in place of all log-probabilities.
    aten._log_softmax.default: decomposition_table[aten._log_softmax.default],
    aten.binary_cross_entropy.default: binary_cross_entropy,
    aten.convolution.default: convolution,
    aten.convolution_backward.default: convolution_backward,
    aten.logit.default: logit,
}
"""Decompositions that replace torch's, by operator."""


def decompositions() -> dict[Any, Callable[..., Any]]:
    """Return a copy of the decomposition table, for the stages before (``make_fx(decomposition_table=...)``)."""
    return dict(_table())


@cache
def _table() -> dict[Any, Callable[..., Any]]:
    """Map each ATen operator to its decomposition.

    Composite operators of other libraries consist of ATen's operators already.
    """
    table: dict[Any, Callable[..., Any]] = {
        op: function
        for op, function in core_aten_decompositions().decomp_table.items()
        if op not in RULES and _packet(op) not in KEEP_PACKETS
    }
    return {**table, **foreach_rules(), **OWN}


def _packet(op: Any) -> str:
    """Return an operator's name without namespace and overload."""
    return str(op._schema.name).partition("::")[2]
