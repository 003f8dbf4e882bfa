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
from fxstack.minify.trials import end_text

_NOTHING = "nothing compiled was called"
WARMUP = 2
"""Number of first steps that the times leave out, because they compile."""


@dataclass(frozen=True, slots=True)
class Result:
    """The times (seconds) and the peak memory (bytes) of one system. ``first`` is the time of the first step.

    ``low``, ``median`` and ``high`` are the quartiles of the later steps. ``ratio`` is eager's median divided
    by this median. A failed run has ``error`` (type and message), ``line`` (the failing line of the program)
    and ``fix``.
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
    line: str = ""
    fix: str = ""


def busy() -> str:
    """Return a warning if other programs use this machine's cores; "" if not.

    ``fxstack bench`` prints it before the first run.
    """
    load, cores = os.getloadavg()[0], os.cpu_count() or 1
    if load < 0.5 * cores:
        return ""
    return f"The machine is busy: load {load:.1f} on {cores} cores. Times below are not reliable."


def quartiles(seconds: Sequence[float]) -> tuple[float, float, float]:
    """Return the quartiles of the seconds per step. Steps that compile are left out."""
    times = list(seconds[min(WARMUP, len(seconds) - 1) :])
    low, median, high = statistics.quantiles(times, n=4) if len(times) > 1 else times * 3
    return low, median, high


def compare(target: str, arguments: Sequence[str], tell: Callable[[str], None]) -> list[Result]:
    """Run ``target`` on each system in a process of its own."""
    results: list[Result] = []
    for system in SYSTEMS:
        tell(f"{system} ...")
        results.append(_measure(system, target, arguments, results[0] if results else Result(system)))
    return results


def _measure(system: str, target: str, arguments: Sequence[str], eager: Result) -> Result:
    """Run ``target`` on one system in a process of its own; ``eager`` is the result to compare with."""
    environment = {name: value for name, value in os.environ.items() if name != "FXSTACK"}
    if system == "fxstack":
        environment["FXSTACK"] = "1"
    with tempfile.TemporaryDirectory(prefix="fxstack-") as folder:
        file = Path(folder) / "result.json"
        command = [sys.executable, "-m", "fxstack.cli.timed", system, str(file), target, *arguments]
        done = subprocess.run(command, capture_output=True, text=True, check=False, env=environment)  # noqa: S603
        measured = loads(file.read_text()) if file.exists() else {"seconds": []}
    seconds = measured["seconds"]
    if done.returncode:
        end = f"the program {end_text(done.returncode)}"
        return _failure_result(system, measured.get("error", end), measured.get("line", ""), target, eager)
    if not seconds:
        return Result(system, error=_NOTHING, fix="let the program call what torch.compile returns")
    low, median, high = quartiles(seconds)
    ratio = (eager.median or median) / median
    return Result(system, len(seconds), seconds[0], low, median, high, measured["memory"], ratio)


def _failure_result(system: str, error: str, line: str, target: str, eager: Result) -> Result:
    """Return the result of a failed run, with a fix that depends on the systems that fail."""
    if system == "eager":
        fix = "mend the program: it fails in plain eager"
    elif eager.error not in ("", _NOTHING):
        fix = "mend the program: it fails in plain eager, too"
    elif system == "fxstack":
        fix = "report it, with what 'fxstack minify SCRIPT' writes"
        fix = fix if ":" in target else fix.replace("SCRIPT", target)
    else:
        fix = "none here: the program runs in eager, torch's own compiler fails"
    return Result(system, error=error, line=line, fix=fix)
