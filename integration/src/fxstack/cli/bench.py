"""``fxstack bench``: a program or a model in eager, by torch.compile and on fxstack, side by side."""

from __future__ import annotations

import os
import statistics
import subprocess
import sys
import tempfile
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from json import loads
from pathlib import Path

from fxstack.cli.timed import SYSTEMS

WARMUP = 2
"""Steps at the begin that the times leave out, because they compile."""


@dataclass(frozen=True, slots=True)
class Result:
    """The seconds of the first step, the quartiles of later steps, and the peak memory in bytes, of one system.

    ``ratio`` is how many times as fast as eager's the median is. ``error`` is the end of a failed run's output.
    """

    system: str
    steps: int = 0
    first: float = 0.0
    low: float = 0.0
    median: float = 0.0
    high: float = 0.0
    memory: int = 0
    ratio: float = 0.0
    error: str = ""


def busy() -> str:
    """Return a warning if other programs use this machine's cores; "" if they do not."""
    load, cores = os.getloadavg()[0], os.cpu_count() or 1
    if load < 0.5 * cores:
        return ""
    return f"The machine is busy: load {load:.1f} on {cores} cores. Times below are not reliable."


def quartiles(seconds: Sequence[float]) -> tuple[float, float, float]:
    """Return the quartiles of the seconds a step, without the steps that compile."""
    times = list(seconds[min(WARMUP, len(seconds) - 1) :])
    low, median, high = statistics.quantiles(times, n=4) if len(times) > 1 else times * 3
    return low, median, high


def compare(target: str, arguments: Sequence[str], tell: Callable[[str], None]) -> list[Result]:
    """Run ``target`` on each system in a process of its own."""
    results: list[Result] = []
    for system in SYSTEMS:
        tell(f"{system} ...")
        results.append(_measured(system, target, arguments, results[0].median if results else 0.0))
    return results


def _measured(system: str, target: str, arguments: Sequence[str], eager: float) -> Result:
    environment = {name: value for name, value in os.environ.items() if name != "FXSTACK"}
    if system == "fxstack":
        environment["FXSTACK"] = "1"
    with tempfile.TemporaryDirectory(prefix="fxstack-") as folder:
        file = Path(folder) / "result.json"
        command = [sys.executable, "-m", "fxstack.cli.timed", system, str(file), target, *arguments]
        done = subprocess.run(command, capture_output=True, text=True, check=False, env=environment)  # noqa: S603
        found = loads(file.read_text()) if file.exists() else {"seconds": []}
    seconds = found["seconds"]
    if done.returncode or not seconds:
        last = (done.stderr.strip().splitlines() or ["it ended without an error"])[-1]
        return Result(system, error=last if done.returncode else "nothing compiled was called")
    low, median, high = quartiles(seconds)
    ratio = (eager or median) / median
    return Result(system, len(seconds), seconds[0], low, median, high, found["memory"], ratio)
