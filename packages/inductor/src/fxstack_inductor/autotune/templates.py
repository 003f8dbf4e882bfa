"""Choose the matrix products that become kernels of this package; the others stay library calls."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Any

import torch
from torch.fx import GraphModule
from torch.fx import Node as FxNode

from fxstack_inductor.cost.devices import Gpu
from fxstack_inductor.cost.products import pays
from fxstack_inductor.errors import NotLowered
from fxstack_inductor.ir.kernel import Kernel
from fxstack_inductor.ir.nodes import HALF_DTYPES
from fxstack_inductor.lower.products import RULES, addmm, baddbmm
from fxstack_inductor.schedule.steps import KernelStep, Plan
from fxstack_inductor.tiling.product_tiles import LEAST, tile_product

Candidates = dict[str, "Candidate"]
"""Candidates by node name."""

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


@dataclass(frozen=True, slots=True)
class Candidate:
    """A product that can be a kernel of this package. ``dtype`` is the dtype of the library's product."""

    rule: Callable[..., Any]
    dtype: torch.dtype

    @property
    def in_library(self) -> int:
        """The number of tensors beside the factors that the library's call takes."""
        return int(self.rule in ADDING)


def candidates(graph_module: GraphModule) -> Candidates:
    """Return the products that can be kernels of this package."""
    return {
        node.name: Candidate(RULES[node.target], node.meta["val"].dtype)
        for node in graph_module.graph.nodes
        if node.target in RULES and _can_be_one(node)
    }


def _can_be_one(node: FxNode) -> bool:
    """Whether both factors are nonempty half-precision matrices of known sizes, with enough reduced elements.

    One row counts as a matrix: a decoding step reads the other factor once anyway. Other float32 products are
    left to the library, which checks at each call whether TF32 is allowed.
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
    return shapes[0][-1] >= LEAST and not any(0 in shape for shape in shapes)


def _held(node: FxNode) -> torch.dtype:
    """Return the dtype of the tensor that ``node`` converts."""
    while node.target in PASSING:
        node = node.args[0]
    if node.target in CONVERSIONS and node.meta["val"].dtype is torch.float32:
        node = node.args[0]
    found: torch.dtype = node.meta["val"].dtype
    return found


def worth(plan: Plan, chosen: Candidates, gpu: Gpu) -> set[str]:
    """Return the names of ``chosen`` nodes whose kernels are predicted to beat the library."""
    found = set()
    for kernel in product_kernels(plan):
        origin = origin_of(kernel, chosen)
        try:
            one = chosen[origin]
            good = pays(tile_product(kernel), gpu, one.dtype, in_library=one.in_library)
        except NotLowered:
            good = False
        if good:
            found.add(origin)
    return found


def product_kernels(plan: Plan) -> Iterable[Kernel]:
    kernels = (step.kernel for step in plan.steps if isinstance(step, KernelStep))
    return (kernel for kernel in kernels if kernel.product is not None)


def origin_of(kernel: Kernel, chosen: Candidates) -> str:
    """Return the node whose product the kernel computes."""
    return next(name for name in kernel.origins if name in chosen)
