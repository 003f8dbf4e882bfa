"""Find the matrix products that can become kernels of this package."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

import torch
from torch.fx import GraphModule
from torch.fx import Node as FxNode

from fxstack_inductor.autotune.candidates import Candidate, Fill, Prediction
from fxstack_inductor.cost.devices import Gpu
from fxstack_inductor.ir.kernel import Kernel
from fxstack_inductor.ir.nodes import HALF_DTYPES
from fxstack_inductor.templates.product.cost import does_more, predict_both, work_of
from fxstack_inductor.templates.product.rules import RULES, addmm, baddbmm
from fxstack_inductor.templates.product.tiling import (
    CONFIGS,
    MIN_SIDE,
    ProductConfig,
    ProductTiling,
    fitting_configs,
    tile_product,
)
from fxstack_inductor.templates.product.writer import write_product
from fxstack_inductor.tiling.kernels import TritonKernel

# Limits: the operations beside a library's product are timed as a copy of equally many bytes.

ADDING = (addmm, baddbmm)
aten = torch.ops.aten
CONVERSIONS = frozenset({aten._to_copy.default, torch.ops.prims.convert_element_type.default})
PASSING = frozenset(
    {
        *(aten.view.default, aten._unsafe_view.default, aten.permute.default, aten.t.default),
        *(aten.transpose.int, aten.expand.default, aten.unsqueeze.default, aten.clone.default),
    }
)
"""Operators whose result has the elements of their first argument."""


@dataclass(frozen=True)
class ProductCandidate(Candidate):
    """A product that can be a kernel of this package. ``dtype`` is the dtype of the library's product."""

    rule: Callable[..., Any]
    """The rule of ``RULES`` for the node's operator."""
    dtype: torch.dtype
    config_type = ProductConfig

    @property
    def in_library(self) -> int:
        """The number of tensors beside the factors that the library's call takes."""
        return int(self.rule in ADDING)

    def predict(self, kernel: Kernel, gpu: Gpu) -> Prediction:
        return predict_both(tile_product(kernel), gpu, self.dtype, in_library=self.in_library)

    def key(self, kernel: Kernel) -> str:
        written = _written(tile_product(kernel, CONFIGS[0]), "KERNEL")
        return f"{written.text}\n{written.signature}\n{self.in_library} {self.dtype}"

    def alternatives(self, kernel: Kernel) -> list[TritonKernel]:
        configs = fitting_configs(tile_product(kernel))
        return [_written(tile_product(kernel, config), f"kernel_{k}") for k, config in enumerate(configs)]

    def library_calls(self, kernel: Kernel, fill: Fill) -> Iterator[Callable[[], object]]:
        """Yield calls to time: the library's product, then a copy of as many bytes as a kernel for the rest moves."""
        work = work_of(tile_product(kernel))
        batch, rows, columns, depth = work.sides
        left = fill(batch * rows * depth, self.dtype).view(batch, rows, depth)
        right = fill(batch * depth * columns, self.dtype).view(batch, depth, columns)
        yield lambda: torch.bmm(left, right)
        if does_more(kernel, self.in_library):
            source = fill((work.result + work.beside) // 2, torch.int8)
            target = torch.empty_like(source)
            yield lambda: target.copy_(source)


def _written(tiling: ProductTiling, name: str) -> TritonKernel:
    """Return the kernel with this tiling as a function."""
    return TritonKernel(name, write_product(tiling, name), tiling)


def candidates(graph_module: GraphModule) -> Mapping[str, ProductCandidate]:
    """Return the products of a graph that can be kernels of this package, by the node's name."""
    return {
        node.name: ProductCandidate(RULES[node.target], node.meta["val"].dtype)
        for node in graph_module.graph.nodes
        if node.target in RULES and _can_be_one(node)
    }


def _can_be_one(node: FxNode) -> bool:
    """Whether both factors are nonempty half-precision matrices of known sizes, with enough reduced elements.

    One row counts as a matrix, because a product with one row reads the other factor only once in any case.
    Other float32 products are left to the library, which checks at each call whether TF32 is allowed.
    """
    values = [node.meta.get("val"), *(arg.meta.get("val") for arg in node.all_input_nodes)]
    if not all(isinstance(v, torch.Tensor) and v.layout is torch.strided for v in values):
        return False
    sizes = [s for v in values for s in (*v.shape, *v.stride())]
    if not all(isinstance(s, int) for s in sizes):
        return False
    factors = [arg for arg in node.args if hasattr(arg, "meta")][-2:]
    held = {_held(factor) for factor in factors}
    if len(held) > 1 or held.isdisjoint(HALF_DTYPES):
        return False
    shapes = [factor.meta["val"].shape for factor in factors]
    return shapes[0][-1] >= MIN_SIDE and not any(0 in shape for shape in shapes)


def _held(node: FxNode) -> torch.dtype:
    """Return the dtype that holds the numbers of ``node``.

    If ``node`` converts a tensor to float32, this is the tensor's dtype.
    """
    while node.target in PASSING:
        node = node.args[0]
    if node.target in CONVERSIONS and node.meta["val"].dtype is torch.float32:
        node = node.args[0]
    dtype: torch.dtype = node.meta["val"].dtype
    return dtype
