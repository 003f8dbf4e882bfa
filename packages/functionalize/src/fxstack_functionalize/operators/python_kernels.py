"""Kernels for torch's Python dispatcher. They replace kernels of torch that differ from eager or crash the process."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from typing import Any, Final

import torch

from fxstack_functionalize import torch_compat
from fxstack_functionalize.torch_compat import decomposed_matmul as matmul
from fxstack_functionalize.torch_compat import upsample_compute_output_size
from fxstack_functionalize.tracer.inputs import RestartTraceError

Kernel = Callable[..., Any]

_aten = torch.ops.aten
_KEYS: Final = (torch_compat.DispatchKey.Autograd, torch_compat.DispatchKey.CompositeImplicitAutograd)


def _upsample_kernel(operator: Callable[..., Any]) -> Kernel:
    """Compute the output size from scale factors, and call the operator with this size."""

    def kernel(x: torch.Tensor, output_size: Sequence[int] | None, *options: Any) -> torch.Tensor:
        """``options``: ``align_corners`` if the operator has this parameter, and ``scale_factors``."""
        *aligned, scale_factors = options
        size = upsample_compute_output_size(x.size(), output_size, scale_factors)
        scales: Sequence[float | None] = scale_factors or [None] * len(size)
        result: torch.Tensor = operator(x, size, *aligned, *scales)
        return result

    return kernel


def _dropout(x: torch.Tensor, p: float, train: bool) -> torch.Tensor:
    """Drop elements. Return ``x`` itself if nothing is dropped: torch's composition would copy it."""
    if p == 0 or not train or x.numel() == 0:
        return x
    if p == 1:  # eager draws nothing
        return x * x.new_zeros(())
    result: torch.Tensor = _aten.native_dropout(x, p, train)[0]
    return result


def _matmul(x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
    """Multiply by torch's composition. Its result may be a view of a product, but eager's never is."""
    product: torch.Tensor = matmul(x, y)
    if not product._is_view():
        return product
    result: torch.Tensor = _aten._unsafe_view(product._base, product.shape)
    return result


def _layer_by_layer(operator: Callable[..., Any], flags: int) -> Callable[..., Any]:
    """Run a recurrent operator layer by layer, with eager's dropout between layers.

    torch's composition drops nothing: it tests ``num_layers < i - 1`` for layer ``i``. ``flags`` is the position of
    ``has_biases`` among the arguments: ``input, hx, params`` come before it, or ``data, batch_sizes, hx, params``.
    """

    def kernel(*args: Any) -> tuple[torch.Tensor, ...]:
        """Compute a recurrent network with dropout one layer at a time, and draw each dropout as eager does."""
        # read here, because importing this module must not fail if torch drops a private name
        composition = torch_compat.decomposition_table[operator]
        has_biases, num_layers, p, train, bidirectional = args[flags : flags + 5]
        if p == 0 or not train or num_layers < 2:
            results: tuple[torch.Tensor, ...] = composition(*args)
            return results
        x, *sizes, hx, params = args[:flags]
        batch_first = args[flags + 5 :]
        rows, width = 1 + bidirectional, len(params) // num_layers
        states = [hx] if isinstance(hx, torch.Tensor) else hx
        # eager draws for (time, batch, feature), whatever the caller's order
        x = x.transpose(0, 1) if any(batch_first) else x
        finals = []
        for i in range(num_layers):
            state = [states_of_kind[i * rows : (i + 1) * rows] for states_of_kind in states]
            x, *final = composition(
                *(x, *sizes, state[0] if isinstance(hx, torch.Tensor) else state),
                *(params[i * width : (i + 1) * width], has_biases, 1, 0.0, train, bidirectional),
                *(False for _ in batch_first),
            )
            finals.append(final)
            x = torch.dropout(x, p, train) if i < num_layers - 1 else x
        x = x.transpose(0, 1) if any(batch_first) else x
        return x, *(torch.cat(layer_states) for layer_states in zip(*finals, strict=True))

    return kernel


_RECURRENT: Final = (_aten.lstm, _aten.gru, _aten.rnn_tanh, _aten.rnn_relu)

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
    # torch's kernels divide sizes by sizes, but eager multiplies by the reciprocal of the scale.
    **{operator.default: None for operator in _NEAREST},
    **{operator.input: _layer_by_layer(operator.input, 3) for operator in _RECURRENT},
    **{operator.data: _layer_by_layer(operator.data, 4) for operator in _RECURRENT},
    _aten.dropout.default: _dropout,
    _aten.matmul.default: _matmul,
    **{
        operator.vec: _upsample_kernel(operator.default)
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

ZEROS: Final = _aten._efficientzerotensor.default
"""Makes a tensor that the dispatcher knows to be zero. The derivatives of ``sgn`` and others return such tensors."""
_ZERO_KEY: Final = torch_compat.DispatchKey.ZeroTensor


def _below_zeros(operator: Callable[..., Any]) -> Kernel:
    """Return a kernel that runs a view operator on a tensor of zeros as on any other tensor.

    torch's own kernel for zeros runs before the functionalisation. It copies a functional tensor's keys into a tensor
    that is not functional, and the first use of this tensor ends the process.
    """

    def kernel(*args: object, **kwargs: object) -> Any:
        with torch_compat.ExcludeDispatchKeyGuard(torch_compat.DispatchKeySet(_ZERO_KEY)):
            return operator(*args, **kwargs)

    return kernel


def zeros_rule(*, ready: bool) -> Kernel:
    """Return the decomposition of ``ZEROS``. ``ready``: the Python dispatcher is on, with ``exact_kernels``."""

    def rule(*_args: object, **_kwargs: object) -> Any:
        """Restart the trace at its first tensor of zeros, with ``zero_tensors``. Such a trace has ``exact_kernels``."""
        if ready:
            return NotImplemented
        raise RestartTraceError(lambda captured: replace(captured, zero_tensors=True))

    return rule


def _own_kernels() -> dict[Any, dict[Any, Kernel | None]]:
    """Return the kernel for each operator and key, None to remove torch's."""
    replacements: dict[Any, dict[Any, Kernel | None]] = {
        operator: {key: kernel for key in _KEYS if key in operator.py_kernels}
        for operator, kernel in _KERNELS.items()
    }
    views = (_aten.view.default, _aten.as_strided.default, _aten._reshape_alias.default)
    return replacements | {operator: {_ZERO_KEY: _below_zeros(operator)} for operator in views}


@contextmanager
def exact_kernels() -> Iterator[None]:
    """Replace torch's Python dispatcher kernels that differ from eager, while a graph is traced."""
    replacements = _own_kernels()
    saved_kernels = {operator: dict(operator.py_kernels) for operator in replacements}
    for operator, kernels in replacements.items():
        operator.py_kernels.update(kernels)
        for key in [key for key, kernel in kernels.items() if kernel is None]:
            del operator.py_kernels[key]
        operator._dispatch_cache.clear()
    try:
        yield
    finally:
        for operator, kernels in saved_kernels.items():
            operator.py_kernels.clear()
            operator.py_kernels.update(kernels)
            operator._dispatch_cache.clear()
