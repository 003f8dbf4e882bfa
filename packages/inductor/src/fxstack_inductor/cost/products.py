"""Whether a matrix product is worth a kernel of our own: when what is fused with it saves more than the library's speed.

A library's product writes its result, and what is done with each element reads it again; a kernel of our own does that in
registers. It reaches less of the matrix units' peak than a library that is tuned for each shape.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import torch

from fxstack_inductor.cost.devices import REACHED_BANDWIDTH, REACHED_MATRIX
from fxstack_inductor.ir.expr import product
from fxstack_inductor.ir.kernel import Compute

if TYPE_CHECKING:
    from fxstack_inductor.codegen.product_tiles import ProductTiling
    from fxstack_inductor.cost.devices import Gpu
    from fxstack_inductor.ir.expr import Expr
    from fxstack_inductor.ir.kernel import Kernel

OWN_MATRIX = 0.55
"""Of the peak, in a large product by a kernel of ours."""
HALF = 2
"""Bytes of an element."""
MARGIN = 0.95
"""What the prediction must come to, of the library's, before it is believed."""


@dataclass(frozen=True, slots=True)
class _Work:
    """Bytes of the factors, of the result, and of what else is read or written; multiplications and additions."""

    factors: int
    result: int
    beside: int
    operations: int


def _work(tiling: ProductTiling) -> _Work:
    kernel = tiling.kernel
    sides = (tiling.batch, tiling.rows, tiling.columns, kernel.inner)
    batch, rows, columns, depth = (_count(product(x.extent for x in loops)) for loops in sides)
    factors = batch * depth * (rows + columns) * HALF
    result = batch * rows * columns * HALF
    moved = sum(_count(ref.numel) * ref.dtype.itemsize for ref in kernel.buffers)
    return _Work(factors, result, max(moved - factors, result), 2 * batch * rows * columns * depth)


def pays(tiling: ProductTiling, gpu: Gpu, *, in_library: int) -> bool:
    """Whether the kernel is predicted to beat the library's call and a kernel for the rest.

    ``in_library``: how many of the buffers beside the factors the call takes itself (the addend of ``addmm``).
    """
    if not _does_more(tiling.kernel, in_library):
        return False
    work = _work(tiling)
    bandwidth = gpu.bandwidth * REACHED_BANDWIDTH
    rate = gpu.peak(torch.bfloat16, matrix=True) * REACHED_MATRIX
    call = max(work.operations / rate, (work.factors + work.result) / bandwidth, gpu.launch)
    rest = max((work.result + work.beside) / bandwidth, gpu.launch)
    return predict_product(tiling, gpu)[0] < MARGIN * (call + rest)


def predict_product(tiling: ProductTiling, gpu: Gpu) -> tuple[float, str]:
    """Seconds for the kernel, and what takes them."""
    work = _work(tiling)
    programs = max(1, _count(tiling.grid))
    waves = -(-programs // gpu.processors) * gpu.processors / programs
    rate = gpu.peak(torch.bfloat16, matrix=True) * OWN_MATRIX / waves
    return max(
        (work.operations / rate, "arithmetic"),
        ((work.factors + work.beside) / (gpu.bandwidth * REACHED_BANDWIDTH), "memory"),
        (gpu.launch, "launch"),
    )


def _does_more(kernel: Kernel, in_library: int) -> bool:
    """Whether there is anything that the library's call does not do."""
    extra = len(kernel.buffers) - 3 - in_library
    arithmetic = [
        v
        for v in kernel.values
        if isinstance(v, Compute) and not v.op.startswith(("round", "cast"))
    ]
    return extra > 0 or len(arithmetic) > 1 + in_library or len(kernel.stores) > 1


def _count(expr: Expr) -> int:
    known = expr.as_int()
    return 1 if known is None else known
