"""The metadata of a real tensor for which a graph is specialised, as a guard record."""

from __future__ import annotations

from collections.abc import Sequence

import torch

from fxstack_capture import torch_compat
from fxstack_capture.breaks import graph_break
from fxstack_capture.guards.records import TensorIs
from fxstack_capture.torch_side.fakes.writes import is_leaf
from fxstack_capture.torch_side.subclasses.fake_classes import why_not_followed
from fxstack_capture.torch_side.subclasses.wrapping import is_wrapped

PLAIN_CLASSES = frozenset({torch.Tensor, torch.nn.Parameter})


def tensor_is(
    real: torch.Tensor, sizes: Sequence[int | None] | None = None, strides: Sequence[int | None] | None = None
) -> TensorIs:
    """Return the guard record of ``real``. ``None`` among sizes and strides marks a dynamic number."""
    # A tensor that does not require grad is always a leaf, so the record holds ``is_leaf`` only for other
    # tensors.
    return TensorIs(
        cls=type(real),
        keyset=torch_compat.dispatch_keys(real).raw_repr(),
        dtype=real.dtype,
        device=real.device,
        layout=real.layout,
        requires_grad=real.requires_grad,
        sizes=tuple(real.size()) if sizes is None else tuple(sizes),
        strides=tuple(real.stride()) if strides is None else tuple(strides),
        is_leaf=real.is_leaf if real.requires_grad else None,
    )


def demand_supported(real: torch.Tensor) -> None:
    """Break the graph for a tensor of a kind that fakes do not represent exactly."""
    kind = _unsupported_kind(real)
    if kind is not None:
        raise graph_break("unsupported-tensor", kind)


def _unsupported_kind(real: torch.Tensor) -> str | None:
    cls = type(real)
    if cls not in PLAIN_CLASSES:
        why = why_not_followed(cls)
        if why is not None:
            return f"class {cls.__module__}.{cls.__qualname__}, which {why},"
    if real.layout is not torch.strided:
        return f"layout {real.layout}"
    if real.is_quantized:
        return f"quantized dtype {real.dtype}"
    if real.is_nested:
        return "nested tensor"
    if real.requires_grad and is_leaf(real) is None:
        return "view made under no_grad, whose base was changed,"
    if is_wrapped(real):
        return "tensor inside a torch.func transform"
    if torch_compat.is_legacy_batchedtensor(real):
        return "tensor inside of autograd's own vmap"
    return None
