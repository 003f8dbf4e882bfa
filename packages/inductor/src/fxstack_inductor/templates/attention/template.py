"""Attention as a template."""

from __future__ import annotations

from collections.abc import Mapping

from torch.fx import GraphModule

from fxstack_inductor.cost.devices import Gpu
from fxstack_inductor.cost.roofline import Cost
from fxstack_inductor.ir.kernel import Kernel
from fxstack_inductor.lower.target import KernelTarget
from fxstack_inductor.options import InductorOptions
from fxstack_inductor.templates.attention.cost import attention_cost
from fxstack_inductor.templates.attention.records import ATTENTION
from fxstack_inductor.templates.attention.rules import attention_rules
from fxstack_inductor.templates.attention.tiling import AttentionTiling, tile_attention
from fxstack_inductor.templates.attention.writer import AttentionWriter
from fxstack_inductor.templates.template import Rules, Template
from fxstack_inductor.tiling.kernels import KernelConfig


class AttentionTemplate(Template[AttentionTiling]):
    """Kernels of ``flex_attention`` and its gradients. They have no library call to compare with."""

    name = ATTENTION

    def rules(self, graph_module: GraphModule, options: InductorOptions, target: KernelTarget) -> Rules:
        return attention_rules(graph_module, options, target)

    def tile(self, kernel: Kernel, config: KernelConfig | None = None) -> AttentionTiling:
        assert config is None, "attention kernels are not searched"
        return tile_attention(kernel)

    def write(self, tiling: AttentionTiling, name: str) -> str:
        return AttentionWriter(tiling).function(name)

    def cost(self, tiling: AttentionTiling, gpu: Gpu, sizes: Mapping[str, int]) -> Cost:
        return attention_cost(tiling, gpu, sizes)
