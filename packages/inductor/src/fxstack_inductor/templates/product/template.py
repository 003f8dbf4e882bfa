"""The matrix product as a template."""

from __future__ import annotations

from typing import Final

from fxstack_inductor.templates.product.candidates import candidates
from fxstack_inductor.templates.product.cost import product_cost
from fxstack_inductor.templates.product.rules import PRODUCT
from fxstack_inductor.templates.product.tiling import tile_product
from fxstack_inductor.templates.product.writer import write_product
from fxstack_inductor.templates.template import Template

PRODUCTS: Final = Template(PRODUCT, tile_product, write_product, product_cost, candidates=candidates)
"""Products of half-precision matrices, fused with the operations around them."""
