"""Separate the biases of GPU convolutions from the convolutions.

cuDNN adds no bias. So ATen's call launches another kernel that reads and writes the whole result. ATen's
gradient launches another kernel that sums the whole gradient. An addition or a sum in the graph fuses with
neighbouring operators instead. ATen's own kernels of depthwise convolutions add the bias themselves; cuDNN computes
depthwise convolutions of some sizes, and all of images in channels-last layout.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch

from fxstack_inductor.torch_compat import ConvBackend, select_conv_backend

aten = torch.ops.aten
OWN_KERNELS = (ConvBackend.CudaDepthwise2d, ConvBackend.CudaDepthwise3d)


def convolution(  # noqa: PLR0917 - the operator's signature
    x: torch.Tensor, weight: torch.Tensor, bias: torch.Tensor | None, stride: Sequence[int],
    padding: Sequence[int], dilation: Sequence[int], transposed: bool, output_padding: Sequence[int],
    groups: int,
) -> Any:  # fmt: skip
    """Decompose ``aten.convolution`` into a convolution and an addition.

    Return NotImplemented if that brings nothing: on a CPU, without a bias, or where ATen's own kernel adds it.
    """
    rest = (stride, padding, dilation, transposed, output_padding, groups)
    if bias is None or not x.is_cuda or _adds_bias(x, weight, bias, *rest):
        return NotImplemented
    plain = aten.convolution.default(x, weight, None, *rest)
    shape = [1] * plain.dim()
    shape[plain.dim() - weight.dim() + 1] = bias.shape[0]
    return plain + bias.view(shape)


def _adds_bias(x: torch.Tensor, weight: torch.Tensor, bias: torch.Tensor, *rest: Any) -> bool:
    """Whether ATen's own kernel computes the convolution: it computes depthwise convolutions that cuDNN does not take."""
    if weight.shape[1] != 1 or rest[-1] == 1:
        return False
    sizes = (*x.shape, *weight.shape)
    if x.dim() != weight.dim() or not all(isinstance(size, int) for size in sizes):
        return True  # unknown: ATen chooses by the sizes
    return select_conv_backend(x, weight, bias, *rest, list(bias.shape)) in OWN_KERNELS


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
