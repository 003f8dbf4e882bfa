"""Separate the biases of GPU convolutions from the convolutions.

cuDNN adds no bias. So ATen's call launches another kernel that reads and writes the whole result. ATen's
gradient launches another kernel that sums the whole gradient. An addition or a sum in the graph fuses with
neighbouring operators instead. Depthwise convolutions are ATen's own kernels, which add the bias themselves.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch

aten = torch.ops.aten


def convolution(  # noqa: PLR0917 - the operator's signature
    x: torch.Tensor, weight: torch.Tensor, bias: torch.Tensor | None, stride: Sequence[int],
    padding: Sequence[int], dilation: Sequence[int], transposed: bool, output_padding: Sequence[int],
    groups: int,
) -> Any:  # fmt: skip
    """Decompose ``aten.convolution`` into a convolution and an addition.

    Return NotImplemented if that brings nothing: on a CPU, without a bias, or for a depthwise convolution.
    """
    if bias is None or not x.is_cuda or (groups > 1 and weight.shape[1] == 1):
        return NotImplemented
    rest = (stride, padding, dilation, transposed, output_padding, groups)
    plain = aten.convolution.default(x, weight, None, *rest)
    shape = [1] * plain.dim()
    shape[plain.dim() - weight.dim() + 1] = bias.shape[0]
    return plain + bias.view(shape)


def convolution_backward(  # noqa: PLR0917 - the operator's signature
    grad: torch.Tensor, x: torch.Tensor, weight: torch.Tensor, bias_sizes: Sequence[int] | None,
    stride: Sequence[int], padding: Sequence[int], dilation: Sequence[int], transposed: bool,
    output_padding: Sequence[int], groups: int, output_mask: Sequence[bool],
) -> Any:  # fmt: skip
    """Decompose the gradient of the bias into a sum.

    Return NotImplemented on a CPU, or if nobody needs the gradient of the bias.
    """
    of_x, of_weight, of_bias = output_mask
    if not of_bias or not grad.is_cuda or grad.dim() != weight.dim():
        return NotImplemented
    total = grad.sum([d for d in range(grad.dim()) if d != 1])
    if not of_x and not of_weight:
        return None, None, total
    rest = (stride, padding, dilation, transposed, output_padding, groups)
    mask = [of_x, of_weight, False]
    gradients = aten.convolution_backward.default(grad, x, weight, bias_sizes, *rest, mask)
    return gradients[0], gradients[1], total
