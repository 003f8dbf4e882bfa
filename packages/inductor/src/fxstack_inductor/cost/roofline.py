"""The roofline model: a launch takes a fixed time, and the longer of its memory time and its arithmetic time.

This module does not import torch's operation counts, whose import takes 100 ms.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import torch

from fxstack_inductor.cost.devices import REACHED_BANDWIDTH, REACHED_MATRIX, Gpu
from fxstack_inductor.ir.expr import Expr

PER_PROCESSOR = 2
"""The number of concurrent programs that fills a processor's memory pipelines."""


@dataclass(frozen=True, slots=True)
class Cost:
    """One launch or call. Sizes are in bytes, times in seconds."""

    name: str
    """The kernel's or call's name."""
    what: str
    """Operators that the launch computes, for reports."""
    read: int
    written: int
    operations: int
    """Arithmetic operations."""
    programs: int | None
    """The number of programs (blocks) of a kernel; None for a call."""
    seconds: float
    """The predicted time."""
    bound: str
    """What limits the time: "memory", "arithmetic", or "launch"."""


def roofline(
    gpu: Gpu, moved: int, operations: int, programs: int | None, dtype: torch.dtype, *, matrix: bool
) -> tuple[float, str]:
    """Return the seconds of a launch, and what takes most of them: "memory", "arithmetic", or "launch".

    ``programs``: None if they surely fill the GPU. ``matrix``: the operations use the matrix units.
    """
    needed = gpu.processors * PER_PROCESSOR
    busy = 1.0 if programs is None else min(1.0, max(programs, 1) / needed)
    memory = moved / (gpu.bandwidth * REACHED_BANDWIDTH * busy)
    rate = gpu.peak(dtype, matrix=matrix) * (REACHED_MATRIX if matrix else 1.0)
    arithmetic = operations / (rate * busy)
    seconds, bound = max((memory, "memory"), (arithmetic, "arithmetic"))
    return gpu.launch + seconds, bound if seconds > gpu.launch else "launch"


def size_of(expr: Expr, sizes: Mapping[str, int]) -> int:
    """Return a size as a number.

    A symbol that is missing in ``sizes`` counts as 1: only the host program knows its value.
    """
    return expr.evaluate({v.name: sizes.get(v.name, 1) for v in expr.variables})
