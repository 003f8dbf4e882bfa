"""Predict the times of a schedule's kernels and calls.

A kernel takes the time of a launch, and the longer of its memory time and its arithmetic time (the roofline
model: Williams, Waterman and Patterson, 2009). Both grow if programs are too few to keep all processors busy. Each
element of a buffer counts once. A looped reduction reads its buffers again in each pass that the L2 cache cannot
serve.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from fxstack_inductor.cost.calls import call_traffic
from fxstack_inductor.cost.devices import Gpu
from fxstack_inductor.cost.kernels import combined, kernel_cost
from fxstack_inductor.cost.quantities import seconds_text
from fxstack_inductor.cost.roofline import Cost, roofline
from fxstack_inductor.ir.nodes import ExternCall
from fxstack_inductor.schedule.steps import KernelStep, Plan, Step
from fxstack_inductor.tiling.kernels import KernelTiling
from fxstack_inductor.tiling.tiles import SideBySide, Tiling

Tilings = Mapping[str, KernelTiling]
TemplateCosts = Mapping[str, Callable[[Any, Gpu, Mapping[str, int]], Cost]]
"""The functions that predict a launch of a tiled kernel of a template, by the template's name."""


def predict(
    plan: Plan, tilings: Tilings, gpu: Gpu, sizes: Mapping[str, int], templates: TemplateCosts
) -> tuple[Cost, ...]:
    """Return the costs of the launches and calls of ``plan``, in order; ``sizes`` gives the graph's symbols."""
    costs = (_cost(step, tilings, gpu, sizes, templates) for step in plan.steps)
    return tuple(cost for cost in costs if cost is not None)


def _cost(
    step: Step, tilings: Tilings, gpu: Gpu, sizes: Mapping[str, int], templates: TemplateCosts
) -> Cost | None:
    """Return the cost of a step, or None for a step of the host."""
    if isinstance(step, KernelStep):
        tiling = tilings[step.kernel.name]
        if step.kernel.template:
            return templates[step.kernel.template](tiling, gpu, sizes)
        if isinstance(tiling, SideBySide):
            return combined(
                [kernel_cost(part.kernel, part, gpu, sizes) for part in tiling.parts], step.kernel
            )
        assert isinstance(tiling, Tiling)
        return kernel_cost(step.kernel, tiling, gpu, sizes)
    if isinstance(step, ExternCall) and step.outputs:
        return call_cost(step, gpu, sizes)
    return None


# --- calls ---------------------------------------------------------------------------------------


def call_cost(step: ExternCall, gpu: Gpu, sizes: Mapping[str, int]) -> Cost:
    """Return the cost of an ATen call: operations by torch's formula (0 without a formula), and one access of
    each tensor.
    """
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
    """Return the line of a launch or call in ``report``."""
    moved = (cost.read + cost.written) / 1e6
    rate = (cost.read + cost.written) / cost.seconds / 1e9
    return (
        f"{seconds_text(cost.seconds):>10} {cost.bound:<10} {moved:>9.2f} MB {rate:>6.0f} GB/s "
        f"{cost.operations / 1e9:>9.3f} GFLOP  {cost.name}: {_shortened(cost.what)}"
    )


def _shortened(text: str, most: int = 60) -> str:
    """Return the beginning of ``text``, at most ``most`` characters."""
    return text if len(text) <= most else f"{text[: most - 3]}..."
