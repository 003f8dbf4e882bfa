"""Whether a matrix product is worth a kernel of our own: when what is fused with it saves more than the library's speed.

A library's product writes its result, and what is done with each element reads it again; a kernel of our own does that in
registers. It reaches less of the matrix units' peak than a library that is tuned for each shape.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import torch

from fxstack_inductor.cost.devices import REACHED_BANDWIDTH, REACHED_MATRIX
from fxstack_inductor.ir.kernel import Compute

if TYPE_CHECKING:
    from fxstack_inductor.codegen.triton.product_tiles import ProductTiling
    from fxstack_inductor.cost.devices import Gpu
    from fxstack_inductor.ir.expr import Expr
    from fxstack_inductor.ir.kernel import Kernel

OWN_MATRIX = 0.55
"""Of the peak, in a large product by a kernel of ours."""
HALF = 2
"""Bytes of an element."""
LATENCY = 0.7e-6
"""Seconds from asking for what is in memory to having it: for full bandwidth, all that moves in that time must be on its way."""
MARGIN = 0.95
"""What the prediction must come to, of the library's, before it is believed."""


@dataclass(frozen=True, slots=True)
class Work:
    """Bytes of the factors, of the result, and of what else is read or written; multiplications and additions.

    ``sides`` are batches, rows, columns and depth.
    """

    sides: tuple[int, int, int, int]
    factors: int
    result: int
    beside: int
    operations: int


def work_of(tiling: ProductTiling) -> Work:
    """What the kernel has to do."""
    kernel = tiling.kernel
    batch, rows, columns, depth = sides = tiling.sides
    factors = batch * depth * (rows + columns) * HALF
    result = batch * rows * columns * HALF
    moved = sum(_count(ref.numel) * ref.dtype.itemsize for ref in kernel.buffers)
    operations = 2 * batch * rows * columns * depth
    return Work(sides, factors, result, max(moved - factors, result), operations)


def pays(tiling: ProductTiling, gpu: Gpu, dtype: torch.dtype, *, in_library: int) -> bool:
    """Whether the kernel is predicted to beat the library's call, a product of ``dtype``, and a kernel for the rest.

    ``in_library``: how many of the buffers beside the factors the call takes itself (the addend of ``addmm``).
    """
    more = does_more(tiling.kernel, in_library)
    if not more and dtype.itemsize == HALF:
        return False
    work = work_of(tiling)
    wider = dtype.itemsize // HALF
    bandwidth = gpu.bandwidth * REACHED_BANDWIDTH
    rate = gpu.peak(dtype, matrix=True) * REACHED_MATRIX
    moved = wider * (work.factors + work.result)
    call = max(work.operations / rate, moved / bandwidth, gpu.launch)
    rest = max((work.result + work.beside) / bandwidth, gpu.launch) if more else 0.0
    return bool(predict_product(tiling, gpu)[0] < MARGIN * (call + rest))


def predict_product(tiling: ProductTiling, gpu: Gpu) -> tuple[float, str]:
    """Seconds for the kernel, and what takes them."""
    work = work_of(tiling)
    programs = max(1, _count(tiling.grid))
    waves = -(-programs // gpu.processors) * gpu.processors / programs
    rate = gpu.peak(torch.bfloat16, matrix=True) * OWN_MATRIX / waves
    bandwidth = gpu.bandwidth * REACHED_BANDWIDTH * min(1.0, _on_its_way(tiling) / (gpu.bandwidth * LATENCY))
    return max(
        (work.operations / rate, "arithmetic"),
        ((work.factors + work.beside) / bandwidth, "memory"),
        (gpu.launch, "launch"),
    )


def _on_its_way(tiling: ProductTiling) -> int:
    """Bytes of the factors that all programs together have asked for at a time."""
    config, (_, rows, columns, depth) = tiling.config, tiling.sides
    lines = min(config.bm, rows) + min(config.bn, columns)
    deep = min(config.bk * (config.num_stages - 1), depth)
    return max(1, _count(tiling.grid)) * lines * deep * HALF


def does_more(kernel: Kernel, in_library: int) -> bool:
    """Whether there is anything that the library's call does not do."""
    extra = len(kernel.buffers) - 3 - in_library
    arithmetic = [
        v for v in kernel.values if isinstance(v, Compute) and not v.op.startswith(("round", "cast"))
    ]
    return extra > 0 or len(arithmetic) > 1 + in_library or len(kernel.stores) > 1


def _count(expr: Expr) -> int:
    known = expr.as_int()
    return 1 if known is None else known
