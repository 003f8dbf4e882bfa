"""Predict the times of generated kernels without a template, without torch's operation counts."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import torch

from fxstack_inductor.cost.devices import Gpu
from fxstack_inductor.cost.roofline import Cost, roofline, size_of
from fxstack_inductor.cost.traffic import kernel_traffic
from fxstack_inductor.ir.analysis import analyse
from fxstack_inductor.ir.kernel import Kernel
from fxstack_inductor.tiling.tiles import Tiling


def combined(costs: Sequence[Cost], kernel: Kernel) -> Cost:
    """Return the cost of one launch of small kernels side by side: the time of the slowest."""
    slowest = max(costs, key=lambda cost: cost.seconds)
    read, written, operations = (sum(getattr(c, n) for c in costs) for n in ("read", "written", "operations"))
    programs = sum(cost.programs or 0 for cost in costs)
    what = ", ".join(kernel.origins)
    return Cost(kernel.name, what, read, written, operations, programs, slowest.seconds, slowest.bound)


def kernel_cost(kernel: Kernel, tiling: Tiling, gpu: Gpu, sizes: Mapping[str, int]) -> Cost:
    """Return the cost of one launch of a kernel of the loop IR."""
    moved = kernel_traffic(kernel, sizes)
    passes = analyse(kernel).last_stage + 1 if tiling.kind == "looped" and moved.read > gpu.l2 else 1
    programs = size_of(tiling.grid, sizes)
    total = passes * moved.read + moved.written
    seconds, bound = roofline(gpu, total, moved.operations, programs, torch.float32, matrix=False)
    what = ", ".join(kernel.origins)
    return Cost(kernel.name, what, moved.read, moved.written, moved.operations, programs, seconds, bound)
