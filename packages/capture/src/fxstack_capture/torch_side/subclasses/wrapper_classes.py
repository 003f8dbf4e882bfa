"""Which tensors are wrappers: wrapper subclasses of users, and tensors wrapped by layers of ``torch.func``."""

from __future__ import annotations

from typing import Any

import torch

from fxstack_capture import torch_compat
from fxstack_capture.torch_compat import FakeTensor, is_traceable_wrapper_subclass
from fxstack_capture.trace.late_guards.class_reads import raw_lookup

_DEFAULT = torch.Tensor.__torch_function__.__func__
_DISABLED = torch_compat.disabled_torch_function_impl
_NO_DISPATCH = torch_compat.disabled_torch_dispatch_impl


def is_wrapper(value: object) -> bool:
    """Return whether a value is an instance of a traceable wrapper subclass. A ``FakeTensor`` does not count."""
    return (
        isinstance(value, torch.Tensor)
        and not isinstance(value, FakeTensor)
        and type(value).__torch_dispatch__ is not _NO_DISPATCH
        and is_traceable_wrapper_subclass(value)
    )


def defines_torch_function(cls: Any) -> bool:
    """Return whether a wrapper class defines its own ``__torch_function__``. The interpreter must run it."""
    function = cls.__torch_function__
    return getattr(function, "__func__", function) not in (_DEFAULT, _DISABLED)


def unsupported_wrapper_reason(cls: type, real: torch.Tensor) -> str | None:
    """Return why a trace does not support the wrapper. None for a supported wrapper."""
    if cls.__module__.startswith(("torch.nested", "torch.distributed", "torch.masked", "torch.sparse")):
        return "is torch's own"
    if defines_torch_function(cls) and type(raw_lookup(cls, "__torch_function__")) is not classmethod:
        return "defines __torch_function__ that is no classmethod"
    if real.is_nested or real.layout is not torch.strided:
        return "is not strided"
    return None


_C = torch_compat.functorch


def is_wrapped(value: object) -> bool:
    """Return whether a layer of ``torch.func`` has wrapped the tensor. The layer may have ended."""
    return isinstance(value, torch.Tensor) and bool(
        _C.is_functorch_wrapped_tensor(value) or _C.is_dead_tensor_wrapper(value)
    )


def plain_below(value: torch.Tensor) -> torch.Tensor:
    """Return the tensor below all wrappers of ``torch.func``."""
    while is_wrapped(value):
        value = _C.get_unwrapped(value)
    return value


def are_active() -> bool:
    """Return whether a layer of ``torch.func``, or a level of forward-mode AD, is active in this thread.

    Frames then run in plain Python, because their tensors are wrapped.
    """
    return bool(_C.get_dynamic_layer_stack_depth()) or torch_compat.dual_level() >= 0
