"""Which matrix products become kernels of our own, and which stay calls of a library."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import torch

from fxstack_inductor.codegen.product_tiles import LEAST, tile_product
from fxstack_inductor.cost.products import pays
from fxstack_inductor.errors import NotLowered
from fxstack_inductor.ir.nodes import HALF_DTYPES
from fxstack_inductor.lower.products import RULES, addmm, baddbmm
from fxstack_inductor.schedule.steps import KernelStep

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from torch.fx import GraphModule
    from torch.fx import Node as FxNode

    from fxstack_inductor.cost.devices import Gpu
    from fxstack_inductor.ir.kernel import Kernel
    from fxstack_inductor.schedule.plan import Plan

    Rules = dict[str, Callable[..., Any]]

ADDING = (addmm, baddbmm)


def candidates(graph_module: GraphModule) -> Rules:
    """The rules of the products that can be kernels of our own, by the names of their nodes."""
    return {
        node.name: RULES[node.target]
        for node in graph_module.graph.nodes
        if node.target in RULES and _can_be_one(node)
    }


def _can_be_one(node: FxNode) -> bool:
    """Half-precision matrices of known sizes that are neither tiny nor empty.

    Products of float32 are left to the library, which asks at each call whether TF32 is allowed.
    """
    values = [node.meta.get("val"), *(arg.meta.get("val") for arg in node.all_input_nodes)]
    if not all(isinstance(v, torch.Tensor) and v.layout is torch.strided for v in values):
        return False
    if values[0].dtype not in HALF_DTYPES:
        return False
    sizes = [s for v in values for s in (*v.shape, *v.stride())]
    if not all(isinstance(s, int) for s in sizes):
        return False
    factors = [arg.meta["val"] for arg in node.args if hasattr(arg, "meta")][-2:]
    return all(min(f.shape[-2:]) >= LEAST and f.numel() for f in factors)


def worth(plan: Plan, chosen: Rules, gpu: Gpu) -> set[str]:
    """The names of those of the ``chosen`` nodes whose kernels are predicted to beat the library."""
    addends = {name for name, rule in chosen.items() if rule in ADDING}
    found = set()
    for kernel in product_kernels(plan):
        origin = origin_of(kernel, chosen)
        try:
            good = pays(tile_product(kernel), gpu, in_library=int(origin in addends))
        except NotLowered:
            good = False
        if good:
            found.add(origin)
    return found


def product_kernels(plan: Plan) -> Iterable[Kernel]:
    kernels = (step.kernel for step in plan.steps if isinstance(step, KernelStep))
    return (kernel for kernel in kernels if kernel.product is not None)


def origin_of(kernel: Kernel, chosen: Rules) -> str:
    """The node whose product the kernel computes."""
    return next(name for name in kernel.origins if name in chosen)
