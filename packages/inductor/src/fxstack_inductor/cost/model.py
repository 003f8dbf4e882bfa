"""Predict the times of a schedule's kernels and calls.

A kernel takes the longer of its memory time and its arithmetic time (the roofline model: Williams, Waterman
and Patterson, 2009). The time grows if programs are too few to keep all processors busy, and is at least the
time of a launch. Each element of a buffer counts once; a looped reduction reads it again in every pass that
the L2 cache cannot serve.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from math import prod

import torch

from fxstack_inductor.cost.devices import REACHED_BANDWIDTH, REACHED_MATRIX, Gpu
from fxstack_inductor.cost.products import predict_product
from fxstack_inductor.cost.quantities import seconds_text
from fxstack_inductor.cost.traffic import call_traffic, kernel_traffic, size_of
from fxstack_inductor.ir.analysis import analyse
from fxstack_inductor.ir.kernel import Kernel
from fxstack_inductor.ir.nodes import ExternCall
from fxstack_inductor.schedule.steps import KernelStep, Plan, Step
from fxstack_inductor.tiling.attention_tiles import AttentionTiling, attention_of
from fxstack_inductor.tiling.product_tiles import ProductTiling
from fxstack_inductor.tiling.tiles import Tiling

Tilings = Mapping[str, Tiling | ProductTiling | AttentionTiling]

PER_PROCESSOR = 2
"""The number of concurrent programs that fills a processor's memory pipelines."""


@dataclass(frozen=True, slots=True)
class Cost:
    """One launch or call. Sizes are in bytes, times in seconds."""

    name: str
    what: str
    read: int
    written: int
    operations: int
    programs: int | None
    seconds: float
    bound: str
    """The limit of the time: memory, arithmetic, or launch."""


def predict(plan: Plan, tilings: Tilings, gpu: Gpu, sizes: Mapping[str, int]) -> tuple[Cost, ...]:
    """Return the costs of device steps of ``plan``, in order; ``sizes`` gives the graph's symbols."""
    costs = (_cost(step, tilings, gpu, sizes) for step in plan.steps)
    return tuple(cost for cost in costs if cost is not None)


def _cost(step: Step, tilings: Tilings, gpu: Gpu, sizes: Mapping[str, int]) -> Cost | None:
    if isinstance(step, KernelStep):
        tiling = tilings[step.kernel.name]
        if isinstance(tiling, ProductTiling):
            return product_cost(tiling, gpu)
        if isinstance(tiling, AttentionTiling):
            return attention_cost(tiling, gpu, sizes)
        return kernel_cost(step.kernel, tiling, gpu, sizes)
    if isinstance(step, ExternCall) and step.outputs:
        return call_cost(step, gpu, sizes)
    return None


# --- kernels -------------------------------------------------------------------------------------


def kernel_cost(kernel: Kernel, tiling: Tiling, gpu: Gpu, sizes: Mapping[str, int]) -> Cost:
    """Return the cost of one launch of a kernel of the loop IR."""
    moved = kernel_traffic(kernel, sizes)
    passes = analyse(kernel).last_stage + 1 if tiling.kind == "looped" and moved.read > gpu.l2 else 1
    programs = size_of(tiling.grid, sizes)
    total = passes * moved.read + moved.written
    seconds, bound = roofline(gpu, total, moved.operations, programs, torch.float32, matrix=False)
    what = ", ".join(kernel.origins)
    return Cost(kernel.name, what, moved.read, moved.written, moved.operations, programs, seconds, bound)


def product_cost(tiling: ProductTiling, gpu: Gpu) -> Cost:
    """Return the cost of one launch of a matrix product kernel; all sizes are known."""
    kernel = tiling.kernel
    made = [ref for ref in kernel.buffers if ref.name in kernel.written]
    read = [ref for ref in kernel.buffers if ref.name not in kernel.written]
    sizes = [size_of(loop.extent, {}) for loop in (*kernel.outer, *kernel.inner)]
    seconds, bound = predict_product(tiling, gpu)
    return Cost(
        kernel.name,
        ", ".join(kernel.origins),
        sum(size_of(ref.numel, {}) * ref.dtype.itemsize for ref in read),
        sum(size_of(ref.numel, {}) * ref.dtype.itemsize for ref in made),
        2 * prod(sizes),
        size_of(tiling.grid, {}),
        seconds,
        bound,
    )


def attention_cost(tiling: AttentionTiling, gpu: Gpu, sizes: Mapping[str, int]) -> Cost:
    """Return the cost of one launch of an attention; with a mask, half of the scores count."""
    kernel, own = tiling.kernel, attention_of(tiling.kernel)
    scores = own.heads * size_of(own.batch * own.queries * own.keys, sizes)
    products = {"forward": 2, "queries": 3, "keys": 4}[own.kind]
    operations = scores * (own.depth + own.width) * products // (1 if own.mask is None else 2)
    bytes_ = {r.name: size_of(r.numel, sizes) * r.dtype.itemsize for r in kernel.buffers}
    written = sum(size for name, size in bytes_.items() if name in kernel.written)
    total = sum(bytes_.values())
    dtype = next(r.dtype for r in kernel.buffers if r.dtype.is_floating_point)
    programs = size_of(tiling.grid, sizes)
    seconds, bound = roofline(gpu, total, operations, programs, dtype, matrix=True)
    what = ", ".join(kernel.origins)
    return Cost(kernel.name, what, total - written, written, operations, programs, seconds, bound)


def roofline(
    gpu: Gpu, moved: int, operations: int, programs: int | None, dtype: torch.dtype, *, matrix: bool
) -> tuple[float, str]:
    """Return the seconds, and their limit."""
    wanted = gpu.processors * PER_PROCESSOR
    busy = 1.0 if programs is None else min(1.0, max(programs, 1) / wanted)
    memory = moved / (gpu.bandwidth * REACHED_BANDWIDTH * busy)
    rate = gpu.peak(dtype, matrix=matrix) * (REACHED_MATRIX if matrix else 1.0)
    arithmetic = operations / (rate * busy)
    seconds, bound = max((memory, "memory"), (arithmetic, "arithmetic"))
    return (seconds, bound) if seconds > gpu.launch else (gpu.launch, "launch")


# --- calls ---------------------------------------------------------------------------------------


def call_cost(step: ExternCall, gpu: Gpu, sizes: Mapping[str, int]) -> Cost:
    """Return the cost of an ATen call: torch's flop formula, if any, and one access of each tensor."""
    moved = call_traffic(step, sizes)
    dtype = step.outputs[0].dtype
    total = moved.read + moved.written
    seconds, bound = roofline(gpu, total, moved.operations, None, dtype, matrix=True)
    return Cost(
        step.name, str(step.target), moved.read, moved.written, moved.operations, None, seconds, bound
    )


# --- the report ----------------------------------------------------------------------------------


def report(costs: Sequence[Cost], gpu: Gpu) -> str:
    """Return one line for each launch and call, and the sum."""
    head = f"predicted for {gpu.name}: {seconds_text(sum(c.seconds for c in costs))} in {len(costs)} launches"
    rows = [_row(cost) for cost in costs]
    return "\n".join([head, *rows])


def _row(cost: Cost) -> str:
    moved = (cost.read + cost.written) / 1e6
    rate = (cost.read + cost.written) / cost.seconds / 1e9
    return (
        f"{seconds_text(cost.seconds):>10} {cost.bound:<10} {moved:>9.2f} MB {rate:>6.0f} GB/s "
        f"{cost.operations / 1e9:>9.3f} GFLOP  {cost.name}: {_shortened(cost.what)}"
    )


def _shortened(text: str, most: int = 60) -> str:
    return text if len(text) <= most else f"{text[: most - 3]}..."
