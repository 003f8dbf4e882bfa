"""Compare the CUDA kernels of fxstack and torch.compile on a machine without a GPU.

    python cuda_compare.py FOLDER [--models zoo/gpt2 ...] [--modes train infer] [--dtypes bfloat16 float32] [--jobs 2]
        [--systems fxstack] [--tables] [--fit OTHER]

Each model, mode, dtype and system runs in a process of its own over the stand-ins of ``integration/tests/stand_in``: compilers,
allocator and launches are real, kernels compute nothing. The launches of one step, and the peak of its memory, become a JSON
file in FOLDER; files that exist are not made again. The tables show launches by kind, the bytes that they move (``cuda_bytes``),
the peaks, and times of an H100 and an H200 that ``cuda_predict`` derives from them. ``--tables`` only prints what FOLDER has.
The constants of the prediction are fitted to FOLDER's recordings of what a GPU has measured, or to those in OTHER: kernels
change, the measured times do not.
"""

from __future__ import annotations

import argparse
import itertools
import json
import subprocess
import sys
import tempfile
import time
import traceback
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).parents[2] / "testing"))
sys.path.insert(0, str(Path(__file__).parent))

import cuda_measured
import cuda_record
import cuda_report

SYSTEMS = ("torch.compile", "fxstack")
CASES = "cases"
"""Stands for the functions of ``gpu_cases.py`` among the models."""
DRY = "dry"
"""Stands for the two functions of ``measure_dry``."""
SECONDS = 1200
"""The limit of a process."""


@dataclass(frozen=True)
class Row:
    """What one process measures."""

    model: str
    mode: str
    dtype: str
    system: str

    def path(self, folder: Path) -> Path:
        return folder / "_".join(
            [self.model.replace("/", "-").replace(" ", "-"), self.mode, self.dtype, self.system + ".json"]
        )


def measure(row: Row, folder: Path) -> dict[str, Any]:
    """Record the step of a row, in this process."""
    import cuda_models
    import torch

    torch.manual_seed(0)
    if row.model == DRY:
        return measure_dry(row, folder)
    if row.model == CASES:
        return {"cases": measure_cases(row, folder)}
    case = cuda_models.build(row.model, getattr(torch, row.dtype), row.mode)
    call = cuda_record.compiler(row.system)(case.model)
    return cuda_record.record(lambda: case.step(call, row.mode), folder / "kernels")


def measure_cases(row: Row, folder: Path) -> dict[str, Any]:
    """Record the functions whose times on a GPU are known (``cuda_measured.py``), by name."""
    import gpu_cases
    import torch
    from gpu_measure import Machine

    machine, found = Machine(dry=False, folder=folder, seconds=0.0), {}
    known = {*cuda_measured.KERNELS, *cuda_measured.PRODUCTS}
    for case in [
        *gpu_cases.memory_bound(machine),
        *gpu_cases.products(machine),
        *gpu_cases.attention(machine),
    ]:
        if case.name in known:
            torch.compiler.reset()
            call = cuda_record.compiler(row.system)(case.run)
            made = cuda_record.record(lambda c=case, f=call: f(*c.inputs), folder / "kernels")
            found[case.name] = {**made, "traffic": case.traffic, "operations": case.operations}
    return found


def measure_dry(row: Row, folder: Path) -> dict[str, Any]:
    """Write the rows of two functions that need no models."""
    import torch

    x, w = (torch.empty(64, 64, device="cuda", dtype=torch.bfloat16) for _ in range(2))
    functions = {
        "dry/product": lambda: torch.nn.functional.gelu(x @ w) + x,
        "dry/norm": lambda: torch.nn.functional.layer_norm(x, (64,), w[0], w[1]),
    }
    for name, function in functions.items():
        call = cuda_record.compiler(row.system)(function)
        write(
            Row(name, row.mode, row.dtype, row.system), folder, cuda_record.record(call, folder / "kernels")
        )
    return {"cases": {}}


def worker(row: Row, folder: Path) -> None:
    """Write the file of a row; an error becomes part of it."""
    try:
        found = measure(row, folder)
    except Exception as error:
        traceback.print_exc()
        found = {"error": f"{type(error).__name__}: {error}"[:2000]}
    write(row, folder, found)


def write(row: Row, folder: Path, found: dict[str, Any]) -> None:
    path = row.path(folder)
    path.with_suffix(".new").write_text(json.dumps({**row.__dict__, **found}))
    path.with_suffix(".new").rename(path)


def run_process(row: Row, folder: Path) -> None:
    """Measure a row in a process of its own, unless its file exists."""
    path = row.path(folder)
    if path.exists():
        return
    start = time.perf_counter()
    with tempfile.TemporaryDirectory() as images, path.with_suffix(".log").open("w") as log:
        environment = cuda_record.environment(folder / "libraries", folder / "caches", Path(images))
        command = [
            sys.executable,
            __file__,
            str(folder),
            "--worker",
            row.model,
            row.mode,
            row.dtype,
            row.system,
        ]
        try:
            done = subprocess.run(
                command, env=environment, stdout=log, stderr=log, timeout=SECONDS, check=False
            )
            status = f"the process ended with status {done.returncode}"
        except subprocess.TimeoutExpired:
            status = f"not done in {SECONDS} seconds"
    if not path.exists():
        write(row, folder, {"error": status})
    found = json.loads(path.read_text())
    outcome = found.get("error") or f"{len(found.get('launches', ()))} launches"
    note = "" if "not done" in status or status.endswith(" 0") else f" ({status})"
    print(
        f"{row.model} {row.mode} {row.dtype} {row.system}: {outcome[:200]}{note}, {time.perf_counter() - start:.0f} s",
        flush=True,
    )


def run_all(rows: list[Row], folder: Path, jobs: int) -> None:
    """Measure the rows that have no file yet; raises RuntimeError for a torch without CUDA."""
    cuda_record.build_stand_ins(folder / "libraries")
    with ThreadPoolExecutor(jobs) as pool:
        list(pool.map(lambda row: run_process(row, folder), rows))


def rows_of(options: argparse.Namespace) -> list[Row]:
    """The rows to measure; the functions with known times have one setting."""
    import cuda_models

    chosen = options.models or [CASES, *cuda_models.NAMES]
    rows = [Row(CASES, "infer", "bfloat16", system) for system in options.systems if CASES in chosen]
    models = [model for model in chosen if model != CASES]
    product = itertools.product(options.dtypes, options.modes, models, options.systems)
    return rows + [Row(model, mode, dtype, system) for dtype, mode, model, system in product]


def dry() -> int:
    """Check the method of bytes, and record two small models where torch is built for CUDA."""
    import cuda_check

    wrong = cuda_check.main()
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        try:
            run_all([Row(DRY, "infer", "bfloat16", system) for system in SYSTEMS], folder, 2)
        except RuntimeError as reason:
            print(f"models not run: {reason}")
            return wrong
        cuda_report.report(folder)
        failed = [path.stem for path in folder.glob("*.json") if "error" in json.loads(path.read_text())]
    return 1 if wrong or failed else 0


def main() -> int:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("folder", type=Path, nargs="?")
    parser.add_argument("--models", nargs="*")
    parser.add_argument("--modes", nargs="*", default=["train", "infer"])
    parser.add_argument("--dtypes", nargs="*", default=["bfloat16", "float32"])
    parser.add_argument("--systems", nargs="*", default=SYSTEMS)
    parser.add_argument("--jobs", type=int, default=1)
    parser.add_argument("--tables", action="store_true")
    parser.add_argument("--fit", type=Path)
    parser.add_argument("--dry", action="store_true")
    parser.add_argument("--worker", nargs=4, help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.dry:
        return dry()
    folder = options.folder.resolve()
    if options.worker:
        worker(Row(*options.worker), folder)
        return 0
    folder.mkdir(parents=True, exist_ok=True)
    if not options.tables:
        run_all(rows_of(options), folder, options.jobs)
    cuda_report.report(folder, options.fit)
    return 0


if __name__ == "__main__":
    sys.exit(main())
