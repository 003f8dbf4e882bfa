"""Classification of wrapper subclasses: which tensors are wrappers, and which wrappers a trace supports."""

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
    """Whether a value is a traceable wrapper subclass, and not a ``FakeTensor``."""
    return (
        isinstance(value, torch.Tensor)
        and not isinstance(value, FakeTensor)
        and type(value).__torch_dispatch__ is not _NO_DISPATCH
        and is_traceable_wrapper_subclass(value)
    )


def asks(cls: Any) -> bool:
    """Whether a wrapper class defines its own ``__torch_function__``."""
    function = cls.__torch_function__
    return getattr(function, "__func__", function) not in (_DEFAULT, _DISABLED)


def why_not_followed(cls: type, real: torch.Tensor) -> str | None:
    """Return the reason why a trace does not support the wrapper, or ``None`` for a supported wrapper."""
    if cls.__module__.startswith(("torch.nested", "torch.distributed", "torch.masked", "torch.sparse")):
        return "is torch's own"
    if asks(cls) and type(raw_lookup(cls, "__torch_function__")) is not classmethod:
        return "defines __torch_function__ that is no classmethod"
    if real.is_nested or real.layout is not torch.strided:
        return "is not strided"
    return None
