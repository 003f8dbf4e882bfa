"""The matrix product as a template."""

from __future__ import annotations

from collections.abc import Mapping

from torch.fx import GraphModule

from fxstack_inductor.autotune.candidates import Candidates
from fxstack_inductor.cost.devices import Gpu
from fxstack_inductor.cost.roofline import Cost
from fxstack_inductor.ir.kernel import Kernel
from fxstack_inductor.templates.product.candidates import candidates
from fxstack_inductor.templates.product.cost import product_cost
from fxstack_inductor.templates.product.rules import PRODUCT
from fxstack_inductor.templates.product.tiling import ProductTiling, tile_product
from fxstack_inductor.templates.product.writer import ProductWriter
from fxstack_inductor.templates.template import Template
from fxstack_inductor.tiling.kernels import KernelConfig


class ProductTemplate(Template[ProductTiling]):
    """Products of half-precision matrices, fused with the operations around them."""

    name = PRODUCT

    def candidates(self, graph_module: GraphModule) -> Candidates:
        return candidates(graph_module)

    def tile(self, kernel: Kernel, config: KernelConfig | None = None) -> ProductTiling:
        return tile_product(kernel, config)

    def write(self, tiling: ProductTiling, name: str) -> str:
        return ProductWriter(tiling).function(name)

    def cost(self, tiling: ProductTiling, gpu: Gpu, sizes: Mapping[str, int]) -> Cost:
        return product_cost(tiling, gpu, sizes)
