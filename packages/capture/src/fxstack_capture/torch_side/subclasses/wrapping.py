"""Tensors that the layers of ``torch.func`` have wrapped, and whether a layer is active."""

from __future__ import annotations

import torch

from fxstack_capture import torch_compat

_C = torch_compat.functorch


def is_wrapped(value: object) -> bool:
    """Whether a layer has wrapped the tensor. A wrapper whose layer has ended counts, too."""
    return isinstance(value, torch.Tensor) and bool(
        _C.is_functorch_wrapped_tensor(value) or _C.is_dead_tensor_wrapper(value)
    )


def plain_below(value: torch.Tensor) -> torch.Tensor:
    """Return the tensor below all wrappers."""
    while is_wrapped(value):
        value = _C.get_unwrapped(value)
    return value


def are_active() -> bool:
    """Whether a layer is active in this thread."""
    return bool(_C.get_dynamic_layer_stack_depth()) or torch_compat.dual_level() >= 0
