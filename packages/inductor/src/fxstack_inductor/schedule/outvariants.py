"""ATen operators that the host calls in another way than the graph states, with the same result.

Some operators use their ``out=`` variant, into planned memory; ``bernoulli`` is replaced by
``runtime.dropout``.
"""

from __future__ import annotations

from typing import Any

import torch

from fxstack_inductor.ir.expr_forms import contiguous_strides
from fxstack_inductor.ir.nodes import ExternCall
from fxstack_inductor.lower.registry import find_overload

BERNOULLI = find_overload("bernoulli.p")

OUT_VARIANTS = {
    find_overload(f"{name}.default"): find_overload(f"{name}.out")
    for name in ("mm", "bmm", "addmm", "baddbmm", "addbmm", "mv", "addmv", "dot")
}
"""The ``out=`` overload of each operator that writes into planned memory."""


def out_variant(call: ExternCall, device: str = "cpu") -> Any:
    """Return ``call``'s ``out=`` overload, or None if it has none.

    Return None unless ``call`` returns exactly one contiguous tensor on device type ``device``.
    """
    overload = OUT_VARIANTS.get(call.target)
    if overload is None or len(call.outputs) != 1:
        return None
    layout = call.outputs[0].layout
    if layout.device.type != device or layout.stride != contiguous_strides(layout.shape):
        return None
    return overload


def draws_bernoulli(call: object) -> bool:
    """Whether ``call`` draws random bits that ``runtime.dropout.bernoulli`` draws faster, with equal results."""
    if not isinstance(call, ExternCall) or call.target is not BERNOULLI or call.kwargs:
        return False
    layout = call.outputs[0].layout
    return (
        layout.device.type == "cpu"
        and layout.dtype is torch.float32
        and layout.stride == contiguous_strides(layout.shape)
        and isinstance(call.args[1], (int, float))
    )
