"""Replacements for kernels of torch's Python dispatcher whose results differ from eager's."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any, Final

import torch

from fxstack_functionalize import torch_compat
from fxstack_functionalize.torch_compat import decomposed_matmul as matmul
from fxstack_functionalize.torch_compat import upsample_compute_output_size

Kernel = Callable[..., torch.Tensor]

_aten = torch.ops.aten
_KEYS: Final = (torch_compat.DispatchKey.Autograd, torch_compat.DispatchKey.CompositeImplicitAutograd)


def _resampled(operator: Callable[..., Any]) -> Kernel:
    """Compute the output size from scale factors, and call the operator with this size."""

    def kernel(x: torch.Tensor, output_size: Sequence[int] | None, *rest: Any) -> torch.Tensor:
        """``rest``: ``align_corners`` if the operator has this parameter, and ``scale_factors``."""
        *aligned, scale_factors = rest
        size = upsample_compute_output_size(x.size(), output_size, scale_factors)
        scales: Sequence[float | None] = scale_factors or [None] * len(size)
        result: torch.Tensor = operator(x, size, *aligned, *scales)
        return result

    return kernel


def _dropout(x: torch.Tensor, p: float, train: bool) -> torch.Tensor:
    """Drop elements. Return ``x`` itself if nothing is dropped: torch's composition would copy it."""
    if p == 0 or not train or x.numel() == 0:
        return x
    result: torch.Tensor = _aten.native_dropout(x, p, train)[0]
    return result


def _matmul(x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
    """Multiply by torch's composition. Its result may be a view of a product, but eager's never is."""
    product: torch.Tensor = matmul(x, y)
    if not product._is_view():
        return product
    result: torch.Tensor = _aten._unsafe_view(product._base, product.shape)
    return result


_NEAREST: Final = (
    _aten.upsample_nearest1d,
    _aten.upsample_nearest2d,
    _aten.upsample_nearest3d,
    _aten._upsample_nearest_exact1d,
    _aten._upsample_nearest_exact2d,
    _aten._upsample_nearest_exact3d,
)

_KERNELS: Final[dict[Any, Kernel | None]] = {
    # torch's composition counts labels behind the first -1 as class 0.
    _aten.multilabel_margin_loss_forward.default: None,
    # torch's compositions round uint8 differently from eager, and use gathers where eager has a kernel.
    _aten.upsample_bilinear2d.default: None,
    _aten.upsample_bicubic2d.default: None,
    # They divide sizes by sizes, but eager multiplies with the reciprocal of the scale.
    **{operator.default: None for operator in _NEAREST},
    _aten.dropout.default: _dropout,
    _aten.matmul.default: _matmul,
    **{
        operator.vec: _resampled(operator.default)
        for operator in (
            *_NEAREST,
            _aten.upsample_linear1d,
            _aten.upsample_bilinear2d,
            _aten.upsample_bicubic2d,
            _aten.upsample_trilinear3d,
        )
    },
}
"""The replacement of each kernel; None to record the operator itself."""


@contextmanager
def exact_kernels() -> Iterator[None]:
    """Replace torch's Python dispatcher kernels that differ from eager, while a graph is traced."""
    taken = [
        (operator, key, operator.py_kernels.pop(key))
        for operator in _KERNELS
        for key in _KEYS
        if key in operator.py_kernels
    ]
    for operator, key, _ in taken:
        if own := _KERNELS[operator]:
            operator.py_kernels[key] = own
        operator._dispatch_cache.clear()
    try:
        yield
    finally:
        for operator, key, kernel in taken:
            operator.py_kernels[key] = kernel
            operator._dispatch_cache.clear()
