"""Predict a matrix product as a kernel of this package, and as a call of the library.

A library's product writes its result, and the operations on each element read it again; a kernel of this
package does these operations in registers. Such a kernel reaches less of the matrix units' peak than a
library that is tuned for each shape: each of its programs loads rows and columns of the factors for one tile, and
the operations on the elements begin when the tile is done.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from math import prod

import torch

from fxstack_inductor.autotune.candidates import Prediction
from fxstack_inductor.cost.devices import REACHED_BANDWIDTH, REACHED_MATRIX, Gpu
from fxstack_inductor.cost.roofline import Cost, size_of
from fxstack_inductor.cost.traffic import operations_of
from fxstack_inductor.ir.analysis import analyse
from fxstack_inductor.ir.expr import Expr
from fxstack_inductor.ir.kernel import Compute, Kernel, Load, Reduce
from fxstack_inductor.templates.product.tiling import ProductTiling, dot_of, factors

OWN_MATRIX = 0.55
"""The fraction of the peak rate that a kernel of this package reaches in a large product."""
HALF_BYTES = 2
"""Bytes of an element."""
LATENCY = 0.7e-6
"""Memory latency in seconds: for full bandwidth, the bytes moved in this time must be in flight."""
ALONE = 3.0
"""What one processor gets of the caches' rate while others wait, in parts of its even share: 64 bytes a cycle."""
LIBRARY_TILE = 128
"""Rows and columns of a tile of the library."""
FEW_TILES = 0.73
"""Exponent of the library's rate where its tiles are fewer than the processors, fitted to times of an H100."""
CONVERSIONS = ("round", "cast")
"""The begins of the names of operations that change only the dtype."""


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
    asked: int
    """Bytes that all programs together load of the factors: those of rows and columns once for each tile."""
    before: int
    """Operations on elements of the factors, once for each tile."""
    after: int
    """Operations on elements of the result."""


def work_of(tiling: ProductTiling) -> Work:
    """Return the bytes and operations of a kernel; an unknown size counts as 1."""
    kernel, config = tiling.kernel, tiling.config
    batch, rows, columns, depth = sides = tiling.sides
    held = batch * depth * (rows + columns) * HALF_BYTES
    result = batch * rows * columns * HALF_BYTES
    moved = sum(_count(ref.numel) * ref.dtype.itemsize for ref in kernel.buffers)
    lines = min(config.bm, rows), min(config.bn, columns)
    elements = [max(1, _count(tiling.grid)) * depth * count for count in lines]
    each = [_of_factor(kernel, position) for position in factors(kernel)]
    return Work(
        sides,
        held,
        result,
        max(moved - held, result),
        2 * batch * rows * columns * depth,
        sum(count * loaded for count, (loaded, _) in zip(elements, each, strict=True)),
        sum(count * computed for count, (_, computed) in zip(elements, each, strict=True)),
        batch * rows * columns * _after(kernel),
    )


def _of_factor(kernel: Kernel, position: int) -> tuple[int, int]:
    """Return the bytes loaded for an element of a factor, and the operations on it."""
    dtypes = {ref.name: ref.dtype for ref in kernel.buffers}
    deep = {loop.var for loop in kernel.inner}
    values = [kernel.values[k] for k in analyse(kernel).needed((position,))]
    loads = {v.buffer for v in values if isinstance(v, Load) and not deep.isdisjoint(v.index.variables)}
    return sum(dtypes[name].itemsize for name in loads), sum(map(_arithmetic, values))


def _after(kernel: Kernel) -> int:
    """Return the operations on an element of the product."""
    dot = dot_of(kernel)
    inside = analyse(kernel).needed(kernel.reduction(dot).args)
    return sum(_arithmetic(v) for k, v in enumerate(kernel.values) if k != dot and k not in inside)


def _arithmetic(value: object) -> int:
    """Return the cost of a value in additions; a conversion is free."""
    converts = isinstance(value, Compute) and value.op.startswith(CONVERSIONS)
    return 0 if converts else operations_of(value)


def predict_both(tiling: ProductTiling, gpu: Gpu, dtype: torch.dtype, *, in_library: int) -> Prediction:
    """Return the times of the kernel, and of the library's call (of ``dtype``) with another kernel for the rest.

    ``in_library``: the number of buffers beside the factors that the call itself takes (the addend of
    ``addmm``).
    """
    more = does_more(tiling.kernel, in_library)
    work = work_of(tiling)
    batch, rows, columns, _ = work.sides
    wider = dtype.itemsize // HALF_BYTES
    bandwidth = gpu.bandwidth * REACHED_BANDWIDTH
    tiles = batch * -(-rows // LIBRARY_TILE) * -(-columns // LIBRARY_TILE)
    rate = gpu.peak(dtype, matrix=True) * REACHED_MATRIX * min(1.0, tiles / gpu.processors) ** FEW_TILES
    moved = wider * (work.factors + work.result)
    return Prediction(
        predict_product(tiling, gpu)[0],
        gpu.launch + max(work.operations / rate, moved / bandwidth),
        gpu.launch + (work.result + work.beside) / bandwidth if more else 0.0,
        more or wider > 1,
    )


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
    """Return the seconds of the kernel, and what takes most of them: "arithmetic", "memory" or "launch"."""
    work = work_of(tiling)
    programs = max(1, _count(tiling.grid))
    waves = -(-programs // gpu.processors) * gpu.processors / programs
    rate = gpu.peak(torch.bfloat16, matrix=True) * OWN_MATRIX / waves
    vector = gpu.peak(torch.float32, matrix=False) / waves
    bandwidth = gpu.bandwidth * REACHED_BANDWIDTH * min(1.0, _on_its_way(tiling) / (gpu.bandwidth * LATENCY))
    caches = gpu.caches * min(1.0, ALONE * programs / gpu.processors)
    seconds, bound = max(
        (work.operations / rate + work.before / vector, "arithmetic"),
        ((work.factors + work.beside) / bandwidth, "memory"),
        ((work.asked + work.beside) / caches, "memory"),
    )
    return gpu.launch + seconds + work.after / vector, bound if seconds > gpu.launch else "launch"


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
