"""The rates of this machine's CPU, measured with torch's present number of threads."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import cache
from time import perf_counter

import torch

from fxstack_inductor.cost.traffic import Traffic

_BYTES = 1 << 26
"""The size of the copied tensor: larger than the caches of most processors."""
_PRODUCT = 768
"""The extent of the measured float32 matrix product."""
_RUNS = 3


@dataclass(frozen=True, slots=True)
class Cpu:
    """Rates of one CPU: ``bandwidth`` of a copy in bytes per second, ``peak`` of a matrix product in operations per second."""

    threads: int
    bandwidth: float
    peak: float

    def seconds(self, moved: Traffic) -> tuple[float, str]:
        """Return (predicted seconds of a kernel or call, what limits it: "memory" or "arithmetic")."""
        memory = (moved.read + moved.written) / self.bandwidth
        return max((memory, "memory"), (moved.operations / self.peak, "arithmetic"))


def measure_cpu() -> Cpu:
    """Return the rates of this machine, for reports of measured times.

    The first call for a number of threads takes about 0.1 seconds.
    """
    return _measured(torch.get_num_threads())


@cache
def _measured(threads: int) -> Cpu:
    """Return the rates for ``threads`` threads: measure a copy and a matrix product, once per number."""
    with torch.no_grad():
        source = torch.zeros(_BYTES // 4)
        target = torch.empty_like(source)
        left = torch.ones(_PRODUCT, _PRODUCT)
        copy = _best(lambda: target.copy_(source))
        product = _best(lambda: left @ left)
    return Cpu(threads, 2 * _BYTES / copy, 2 * _PRODUCT**3 / product)


def _best(run: Callable[[], object]) -> float:
    """Return the seconds of the fastest of some runs: other programs make runs slower, never faster."""
    best = float("inf")
    for _ in range(_RUNS):
        start = perf_counter()
        run()
        best = min(best, perf_counter() - start)
    return best
