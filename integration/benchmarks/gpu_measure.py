"""What the sections of ``gpu.py`` share: the device, or its stand-in in dry mode, and how something is timed on it."""

from __future__ import annotations

import faulthandler
import json
import os
import statistics
import sys
import time
import warnings
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch

import fxstack

SCRIPT = Path(__file__).with_name("gpu.py")
LOST = 3
"""Status of a section's process whose device answers no more: what comes next needs another process."""
HANGS = 0.6
"""The share of a section's time after which one case of it is taken to hang."""
EAGER = "runs in eager torch"
"""What a warning says of a graph that is not compiled."""

if TYPE_CHECKING:
    from collections.abc import Callable


@dataclass(frozen=True)
class Machine:
    """Where a section runs. ``dry``: tiny sizes on CPU, Triton's interpreter, and torch.compile's eager backend."""

    dry: bool
    folder: Path
    seconds: float
    """How long the section may take."""

    def command(self, *arguments: str) -> list[str]:
        """The command of a further process of ``gpu.py`` with the same folder."""
        return [sys.executable, str(SCRIPT), str(self.folder), *(["--dry"] if self.dry else []), *arguments]

    @property
    def device(self) -> str:
        return "cpu" if self.dry else "cuda"

    def pick(self, tiny: Any, full: Any) -> Any:
        return tiny if self.dry else full

    def synchronize(self) -> None:
        if not self.dry:
            torch.cuda.synchronize()

    def demand_device(self) -> None:
        """Free what is cached; end the process where the device has met an error that no later call survives."""
        if self.dry:
            return
        try:
            torch.cuda.synchronize()
            torch.cuda.empty_cache()
        except RuntimeError as error:
            print(error, flush=True)
            os._exit(LOST)  # what Python does at its end would wait for the device

    def compilers(self, modes: tuple[str, ...] = ("default",)) -> dict[str, Callable[..., Any]]:
        """Systems by name; each compiles a function or module."""
        made: dict[str, Callable[..., Any]] = {"eager": lambda f: f}
        for mode in modes:
            made[f"torch.compile {mode}"] = lambda f, m=mode: self._incumbent(f, m)
            made[f"fxstack {mode}"] = lambda f, m=mode: self._ours(f, m)
        return made

    def _incumbent(self, function: Callable[..., Any], mode: str) -> Any:
        if self.dry:
            return torch.compile(function, backend="eager")
        return torch.compile(function, mode=mode)

    def _ours(self, function: Callable[..., Any], mode: str) -> Any:
        options = {"target": "cuda"} if self.dry else None
        return Watched(fxstack.compile(function, mode=mode, options=options))

    def median_ms(self, run: Callable[[], Any], *, flush: bool = True) -> float:
        """Median milliseconds on the device, each run after the L2 cache was overwritten if ``flush``."""
        run()
        if self.dry:
            return _wall_ms(run)
        scratch = torch.empty(1 << 28, dtype=torch.int8, device="cuda") if flush else None
        times = []
        started = time.perf_counter()
        while len(times) < 100 and (len(times) < 10 or time.perf_counter() - started < 0.3):
            if scratch is not None:
                scratch.zero_()
            start, end = torch.cuda.Event(enable_timing=True), torch.cuda.Event(enable_timing=True)
            start.record()
            run()
            end.record()
            end.synchronize()
            times.append(start.elapsed_time(end))
        return statistics.median(times)

    def kernels_ms(self, run: Callable[[], Any], steps: int = 3) -> float:
        """Milliseconds that the device computes in a step; what takes most of them is printed."""
        if self.dry:
            run()
            return 0.0
        activity = torch.profiler.ProfilerActivity.CUDA
        torch.cuda.synchronize()
        with torch.profiler.profile(activities=[activity]) as found:
            for _ in range(steps):
                run()
            torch.cuda.synchronize()
        kernels = sorted(found.key_averages(), key=lambda k: -k.device_time_total)
        for kernel in kernels[:14]:
            ms = kernel.device_time_total / steps / 1e3
            print(f"{ms:8.4f} ms {kernel.count / steps:7.1f} {kernel.key[:100]}", flush=True)
        return sum(k.device_time_total for k in kernels) / steps / 1e3

    def host_us(self, run: Callable[[], Any], rounds: int = 200) -> float:
        """Median microseconds that a call keeps the host busy; the device has nothing else to do."""
        times = []
        for _ in range(self.pick(2, rounds)):
            self.synchronize()
            start = time.perf_counter()
            run()
            times.append(time.perf_counter() - start)
        return statistics.median(times) * 1e6

    def peak_mib(self, run: Callable[[], Any]) -> float:
        if self.dry:
            run()
            return 0.0
        torch.cuda.synchronize()
        torch.cuda.reset_peak_memory_stats()
        run()
        torch.cuda.synchronize()
        return torch.cuda.max_memory_allocated() / 2**20


@dataclass
class Watched:
    """A function that we compiled; it complains if it was not: eager's speed under our name would be no result."""

    compiled: Any
    checked: bool = False

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        if self.checked:
            return self.compiled(*args, **kwargs)
        with warnings.catch_warnings(record=True) as said:
            warnings.simplefilter("always")
            result = self.compiled(*args, **kwargs)
        for warning in said:
            print(warning.message, flush=True)
        refused = [text for w in said if EAGER in (text := str(w.message))]
        if refused:
            raise RuntimeError(refused[0])
        if not fxstack.compile_log(self.compiled).graph_count:
            raise RuntimeError("nothing was compiled; the section's log says why")
        self.checked = True
        return result


def _wall_ms(run: Callable[[], Any]) -> float:
    start = time.perf_counter()
    run()
    return (time.perf_counter() - start) * 1e3


@dataclass
class Report:
    """Rows of one section, written to ``<name>.json`` after every row, so that a killed section leaves what it has.

    A process that follows one that died goes on behind the case in which that one did. Cases for which there was no time
    run again.
    """

    name: str
    machine: Machine
    started: float
    rows: list[dict[str, Any]]

    @classmethod
    def start(cls, name: str, machine: Machine) -> Report:
        path = machine.folder / f"{name}.json"
        rows = json.loads(path.read_text())["rows"] if path.exists() else []
        return cls(name, machine, time.perf_counter(), [row for row in rows if "skipped" not in row])

    def has(self, case: str) -> bool:
        """Whether there is a row of a case."""
        return any(row["case"] == case for row in self.rows)

    @property
    def left(self) -> float:
        return self.machine.seconds - (time.perf_counter() - self.started)

    def add(self, **row: Any) -> None:
        """Write a row, in place of an earlier one of its case."""
        self.rows = [old for old in self.rows if old["case"] != row["case"]] + [row]
        text = json.dumps({"section": self.name, "rows": self.rows}, indent=1, default=str)
        (self.machine.folder / f"{self.name}.json").write_text(text)

    def attempt(self, name: str, make_row: Callable[[], dict[str, Any]], seconds: float) -> None:
        """Add ``make_row()``'s row; an error or a lack of time (``seconds`` needed) becomes the row.

        So does the end of the process, which one that hangs is given, with the threads' stacks in the log.
        """
        if self.has(name):
            return
        if self.left < seconds:
            self.add(case=name, skipped=f"{self.left:.0f} s left")
            return
        self.add(case=name, failed="the process ended")
        if not self.machine.dry:
            faulthandler.dump_traceback_later(self.machine.seconds * HANGS, exit=True)
        try:
            self.add(case=name, **make_row())
        except Exception as error:  # a benchmark reports and goes on
            text = " ".join(f"{type(error).__name__}: {error}".split())
            self.add(case=name, failed=text[:600])
        self.machine.demand_device()
        faulthandler.cancel_dump_traceback_later()


def difference(actual: Any, expected: Any, tolerance: float) -> str:
    """Empty if all tensors agree, else what differs first."""
    leaves = torch.utils._pytree.tree_leaves
    got, wanted = leaves(actual), leaves(expected)
    if len(got) != len(wanted):
        return f"{len(got)} results, not {len(wanted)}"
    for a, b in zip(got, wanted, strict=False):
        if not isinstance(b, torch.Tensor):
            continue
        try:
            torch.testing.assert_close(a, b, rtol=tolerance, atol=tolerance, equal_nan=True)
        except AssertionError as error:
            return " ".join(str(error).split())[:200]
    return ""
