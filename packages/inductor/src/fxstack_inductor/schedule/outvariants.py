"""ATen operators that are called through their ``out=`` variant, into planned memory."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from fxstack_inductor.ir.expr import contiguous_strides
from fxstack_inductor.lower.registry import find_overload

if TYPE_CHECKING:
    from fxstack_inductor.ir.nodes import ExternCall

OUT_VARIANTS = {
    find_overload(f"{name}.default"): find_overload(f"{name}.out")
    for name in ("mm", "bmm", "addmm", "baddbmm", "addbmm", "mv", "addmv", "dot")
}


def out_variant(call: ExternCall) -> Any:
    """The ``out=`` overload for ``call``, if its result is one contiguous CPU tensor of an operator that has a good one."""
    found = OUT_VARIANTS.get(call.target)
    if found is None or len(call.outputs) != 1:
        return None
    layout = call.outputs[0].layout
    if layout.device.type != "cpu" or layout.stride != contiguous_strides(layout.shape):
        return None
    return found
