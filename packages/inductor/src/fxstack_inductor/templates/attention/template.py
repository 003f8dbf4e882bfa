"""Attention as a template, with its cost."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from fxstack_inductor.cost.devices import Gpu
from fxstack_inductor.cost.roofline import Cost, roofline, size_of
from fxstack_inductor.templates.attention.records import ATTENTION, attention_of
from fxstack_inductor.templates.attention.rules import attention_rules
from fxstack_inductor.templates.attention.tiling import AttentionTiling, tile_attention
from fxstack_inductor.templates.attention.writer import write_attention
from fxstack_inductor.templates.template import Template


def attention_cost(tiling: AttentionTiling, gpu: Gpu, sizes: Mapping[str, int]) -> Cost:
    """Return the cost of one launch of an attention; with a mask, half of the scores count."""
    kernel, roles = tiling.kernel, attention_of(tiling.kernel)
    scores = roles.heads * size_of(roles.batch * roles.queries * roles.keys, sizes)
    products = {"forward": 2, "queries": 3, "keys": 4}[roles.kind]
    operations = scores * (roles.depth + roles.width) * products // (1 if roles.mask is None else 2)
    bytes_ = {r.name: size_of(r.numel, sizes) * r.dtype.itemsize for r in kernel.buffers}
    written = sum(size for name, size in bytes_.items() if name in kernel.written)
    total = sum(bytes_.values())
    dtype = next(r.dtype for r in kernel.buffers if r.dtype.is_floating_point)
    programs = size_of(tiling.grid, sizes)
    seconds, bound = roofline(gpu, total, operations, programs, dtype, matrix=True)
    operators = ", ".join(kernel.origins)
    return Cost(kernel.name, operators, total - written, written, operations, programs, seconds, bound)


ATTENTIONS: Final = Template(
    ATTENTION, tile_attention, write_attention, attention_cost, rules=attention_rules
)
"""Kernels of ``flex_attention`` and its gradients. They have no library call to compare with."""
