"""Decide whether a matrix product becomes a kernel of this package: fusion must outweigh a faster library.

A library's product writes its result, and the operations on each element read it again; a kernel of this
package does these operations in registers. Such a kernel reaches less of the matrix units' peak than a
library that is tuned for each shape.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from math import prod

import torch

from fxstack_inductor.cost.devices import REACHED_BANDWIDTH, REACHED_MATRIX, Gpu
from fxstack_inductor.cost.roofline import Cost, size_of
from fxstack_inductor.ir.expr import Expr
from fxstack_inductor.ir.kernel import Compute, Kernel, Reduce
from fxstack_inductor.templates.product.tiling import ProductTiling

OWN_MATRIX = 0.55
"""The fraction of the peak rate that a kernel of this package reaches in a large product."""
HALF_BYTES = 2
"""Bytes of an element."""
LATENCY = 0.7e-6
"""Memory latency in seconds: for full bandwidth, the bytes moved in this time must be in flight."""
CONVERSIONS = ("round", "cast")
"""The begins of the names of operations that change only the dtype."""
MARGIN = 0.95
"""The kernel must be predicted to take at most this fraction of the library's time."""


@dataclass(frozen=True, slots=True)
class Work:
    """Bytes of the factors, of the result, and of other reads and writes; multiplications and additions.

    ``sides`` are batches, rows, columns and depth.
    """

    sides: tuple[int, int, int, int]
    factors: int
    """Bytes of both factors."""
    result: int
    beside: int
    """Bytes of other reads and writes."""
    operations: int


def work_of(tiling: ProductTiling) -> Work:
    """Return the bytes and operations of a kernel; an unknown size counts as 1."""
    kernel = tiling.kernel
    batch, rows, columns, depth = sides = tiling.sides
    factors = batch * depth * (rows + columns) * HALF_BYTES
    result = batch * rows * columns * HALF_BYTES
    moved = sum(_count(ref.numel) * ref.dtype.itemsize for ref in kernel.buffers)
    operations = 2 * batch * rows * columns * depth
    return Work(sides, factors, result, max(moved - factors, result), operations)


def pays(tiling: ProductTiling, gpu: Gpu, dtype: torch.dtype, *, in_library: int) -> bool:
    """Whether the kernel is predicted to beat the library's call (of ``dtype``) plus a kernel for the rest.

    ``in_library``: the number of buffers beside the factors that the call itself takes (the addend of
    ``addmm``).
    """
    more = does_more(tiling.kernel, in_library)
    if not more and dtype.itemsize == HALF_BYTES:
        return False
    work = work_of(tiling)
    wider = dtype.itemsize // HALF_BYTES
    bandwidth = gpu.bandwidth * REACHED_BANDWIDTH
    rate = gpu.peak(dtype, matrix=True) * REACHED_MATRIX
    moved = wider * (work.factors + work.result)
    call = max(work.operations / rate, moved / bandwidth, gpu.launch)
    rest = max((work.result + work.beside) / bandwidth, gpu.launch) if more else 0.0
    return bool(predict_product(tiling, gpu)[0] < MARGIN * (call + rest))


def product_cost(tiling: ProductTiling, gpu: Gpu, sizes: Mapping[str, int]) -> Cost:
    """Return the cost of one launch of a matrix product kernel; all sizes are known."""
    kernel = tiling.kernel
    written = [ref for ref in kernel.buffers if ref.name in kernel.written]
    read = [ref for ref in kernel.buffers if ref.name not in kernel.written]
    extents = [size_of(loop.extent, sizes) for loop in (*kernel.outer, *kernel.inner)]
    seconds, bound = predict_product(tiling, gpu)
    return Cost(
        kernel.name,
        ", ".join(kernel.origins),
        sum(size_of(ref.numel, sizes) * ref.dtype.itemsize for ref in read),
        sum(size_of(ref.numel, sizes) * ref.dtype.itemsize for ref in written),
        2 * prod(extents),
        size_of(tiling.grid, sizes),
        seconds,
        bound,
    )


def predict_product(tiling: ProductTiling, gpu: Gpu) -> tuple[float, str]:
    """Return the seconds of the kernel, and what limits them: "arithmetic", "memory" or "launch"."""
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
    """Return the bytes of factors that all programs together have in flight."""
    config, (_, rows, columns, depth) = tiling.config, tiling.sides
    lines = min(config.bm, rows) + min(config.bn, columns)
    deep = min(config.bk * (config.num_stages - 1), depth)
    return max(1, _count(tiling.grid)) * lines * deep * HALF_BYTES


def does_more(kernel: Kernel, in_library: int) -> bool:
    """Whether the kernel does anything that the library's call and the readers of its result do not do.

    Without the kernel, a conversion of the result to another dtype belongs to the readers of the conversion.
    """
    conversions = sum(_converts(kernel, store.value) for store in kernel.stores)
    copies = max(0, conversions - 1)
    extra = len(kernel.buffers) - copies - 3 - in_library
    arithmetic = [v for v in kernel.values if isinstance(v, Compute) and not v.op.startswith(CONVERSIONS)]
    return extra > 0 or len(arithmetic) > 1 + in_library or len(kernel.stores) - copies > 1


def _converts(kernel: Kernel, position: int) -> bool:
    """Whether a value is the product, or the product in another dtype."""
    value = kernel.values[position]
    while isinstance(value, Compute) and value.op.startswith(CONVERSIONS):
        value = kernel.values[value.args[0]]
    return isinstance(value, Reduce)


def _count(expr: Expr) -> int:
    """Return a size as a number; an unknown size counts as 1."""
    count = expr.as_int()
    return 1 if count is None else count
