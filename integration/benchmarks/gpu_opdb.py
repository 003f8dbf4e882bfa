"""The operator database on a GPU, by several processes at once: Triton's compiler has most of the time.

A process that dies, or whose device does, is followed by another one behind the case that it was at. What the processes found
is read from their logs, so that a further call goes on behind the last case of each part.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Iterator

    from gpu_measure import Machine

SCRIPT = Path(__file__).parents[2] / "packages" / "inductor" / "tests" / "sweeps" / "opdb_device.py"
MOST = 12
"""Processes at once."""
SHORT = 5
"""Seconds for which no further process is worth starting, and which are left for what comes after the last one."""


@dataclass
class Part:
    """What the processes of one part of the database have found."""

    cases: int = 0
    samples: int = 0
    wrong: int = 0
    problems: dict[str, str] = field(default_factory=dict)
    position: int | None = 0
    """The next case; None behind the last one."""

    def read(self, log: Path) -> bool:
        """Take over a process's log; whether the process came to its end."""
        text = log.read_text() if log.exists() else ""
        lines = [json.loads(line) for line in text.splitlines()]
        results = [line["result"] for line in lines if line.get("result")]
        self.cases += len(results)
        self.samples += results[-1]["seen"] if results else 0
        self.wrong += results[-1]["wrong"] if results else 0
        for result in results:
            if result["problem"]:
                self.problems[f"{result['name']} {result['dtype']}"] = result["problem"]
        if not lines:
            return False
        if "done" in lines[-1] or "stopped" in lines[-1]:
            self.position = lines[-1].get("stopped")
            return True
        if "case" in lines[-1]:
            self.problems[lines[-1]["case"]] = "the process ended"
        self.position = int(lines[-1]["position"]) + 1
        return False


def sweep(machine: Machine, seconds: float) -> Iterator[dict[str, Any]]:
    """A row for each operator and dtype that fails, and the totals."""
    end = time.monotonic() + seconds - SHORT
    parts = machine.pick(1, max(1, min(MOST, (os.cpu_count() or 1) - 2)))
    with ThreadPoolExecutor(parts) as pool:
        names = [f"{k}/{parts}" for k in range(parts)]
        found = list(pool.map(lambda name: _part(machine, name, end), names))
    for part in found:
        for case, problem in part.problems.items():
            yield {"case": case, "failed": problem}
    yield {
        "case": "total",
        "samples": sum(part.samples for part in found),
        "wrong": sum(part.wrong for part in found),
        "operators and dtypes": sum(part.cases for part in found),
        "processes": parts,
        **(
            {"skipped": "the rest of the database"}
            if any(part.position is not None for part in found)
            else {}
        ),
    }


def _part(machine: Machine, name: str, end: float) -> Part:
    part, tries, ended = Part(), 0, False
    while (log := _log(machine, name, tries)).exists():
        part.read(log)
        tries += 1
    first = tries
    while (
        part.position is not None and not ended and end - time.monotonic() > (SHORT if tries > first else 0)
    ):
        log = _log(machine, name, tries)
        options = ["--part", name, "--skip", str(part.position), "--log", str(log)]
        _run(machine, options, end - time.monotonic())
        if not log.exists():
            part.problems[f"part {name}"] = "it did not start"
            log.touch()
        ended, tries = part.read(log), tries + 1
    return part


def _log(machine: Machine, name: str, tries: int) -> Path:
    return machine.folder / f"opdb-{name.replace('/', 'of')}-{tries}.jsonl"


def _run(machine: Machine, options: list[str], seconds: float) -> None:
    command = [sys.executable, str(SCRIPT), "--device", machine.device, "--seconds", str(seconds)]
    command += machine.pick(["--samples", "1", "--dtypes", "float32"], ["--samples", "2"])
    command += machine.pick(["--ops", "softmax|where|add"], [])
    try:
        subprocess.run([*command, *options], check=False, timeout=seconds + SHORT / 2)
    except subprocess.TimeoutExpired:
        print(f"{' '.join(options)}: stopped, out of time", flush=True)
