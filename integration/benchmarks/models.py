"""Model benchmark: eager, torch.compile and fxstack side by side.

    python models.py [--models bert gpt2 ...] [--modes train infer] [--rounds 3] [--json FILE] [--markdown]

For every model and mode and every system, in processes of their own that alternate between the systems:

- cold: seconds from asking for compilation to the end of the first step, with empty caches;
- warm: the same in a new process with the caches that the cold run filled;
- step: milliseconds a step, median within a process, then median over the rounds;
- peak: peak resident memory of the process in MiB.

Models are built, and torch and transformers imported, before the clock starts; importing the compiler counts.
"""

from __future__ import annotations

import argparse
import json
import os
import resource
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[2] / "testing"))

from result_tables import Table, conditions

SYSTEMS = ("eager", "torch.compile", "fxstack")
SECONDS_OF_STEPS = 3.0


def _compile(system: str, model):
    if system == "torch.compile":
        import torch

        return torch.compile(model)
    if system == "fxstack":
        import fxstack

        return fxstack.compile(model)
    return model


def _one_step(case, model, mode: str) -> None:
    import torch

    if mode == "train":
        case.loss(model, case.batch).backward()
        case.model.zero_grad(set_to_none=True)
    else:
        with torch.no_grad():
            model(**case.batch)


def worker(system: str, name: str, mode: str) -> dict[str, float]:
    """Measure one system on one model in this process."""
    import torch
    import zoo

    case = zoo.build(name, zoo.BENCH)
    case.model.train(mode == "train")
    _one_step(case, case.model, mode)
    start = time.perf_counter()
    model = _compile(system, case.model)
    _one_step(case, model, mode)
    first = time.perf_counter() - start
    steps = []
    end = time.perf_counter() + SECONDS_OF_STEPS
    while time.perf_counter() < end or len(steps) < 5:
        start = time.perf_counter()
        _one_step(case, model, mode)
        steps.append(time.perf_counter() - start)
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
    step = statistics.median(steps) * 1e3
    return {"first": first, "step": step, "peak": peak, "threads": torch.get_num_threads()}


def run_worker(system: str, name: str, mode: str, caches: Path) -> dict[str, float]:
    environment = {
        **os.environ,
        "TORCHINDUCTOR_CACHE_DIR": str(caches / "torch"),
        "FXSTACK_INDUCTOR_CACHE_DIR": str(caches / "fxstack"),
        "TRANSFORMERS_VERBOSITY": "error",
    }
    command = [sys.executable, __file__, "--worker", system, name, mode]
    done = subprocess.run(command, env=environment, capture_output=True, text=True, check=False)
    if done.returncode != 0:
        last = (done.stderr.strip().splitlines() or ["no output"])[-1]
        raise RuntimeError(f"{system} on {name} ({mode}): {last}")
    return json.loads(done.stdout.strip().splitlines()[-1])


def measure(name: str, mode: str, rounds: int) -> dict[str, dict[str, float]]:
    """All systems on one model, alternating: a cold round, then ``rounds`` warm ones."""
    with tempfile.TemporaryDirectory() as folder:
        caches = Path(folder)
        runs = {system: [run_worker(system, name, mode, caches)] for system in SYSTEMS}
        for _ in range(rounds):
            for system in SYSTEMS:
                runs[system].append(run_worker(system, name, mode, caches))
    return {system: _summary(results) for system, results in runs.items()}


def _summary(results: list[dict[str, float]]) -> dict[str, float]:
    warm = results[1:]
    return {
        "cold": results[0]["first"],
        "warm": statistics.median(r["first"] for r in warm),
        "step": statistics.median(r["step"] for r in results),
        "peak": statistics.median(r["peak"] for r in results),
    }


COLUMNS = ("cold", "warm", "step", "peak")


def row(name: str, mode: str, table: dict[str, dict[str, float]]) -> list[str]:
    def figure(system: str, column: str) -> str:
        return f"{table[system][column]:.{0 if column == 'peak' else 2}f}"

    cells = [f"{name} {mode}", figure("eager", "step"), figure("eager", "peak")]
    for column in COLUMNS:
        theirs, ours = table["torch.compile"][column], table["fxstack"][column]
        cells += [figure("torch.compile", column), figure("fxstack", column), f"{ours / theirs:.2f}"]
    return cells


def header() -> list[str]:
    names = ["model", "eager step ms", "eager peak MiB"]
    units = {"cold": "cold s", "warm": "warm s", "step": "step ms", "peak": "peak MiB"}
    for column in COLUMNS:
        names += [f"torch.compile {units[column]}", f"fxstack {units[column]}", "ratio"]
    return names


def medians(tables: list[dict[str, dict[str, float]]]) -> str:
    ratios = {
        column: statistics.median(t["fxstack"][column] / t["torch.compile"][column] for t in tables)
        for column in COLUMNS
    }
    text = ", ".join(f"{column} {ratio:.3f}" for column, ratio in ratios.items())
    to_eager = statistics.median(t["fxstack"]["step"] / t["eager"]["step"] for t in tables)
    return f"Median ratios fxstack / torch.compile: {text}; step fxstack / eager {to_eager:.3f}."


def main() -> None:
    import zoo

    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--worker", nargs=3, metavar=("SYSTEM", "MODEL", "MODE"))
    parser.add_argument("--models", nargs="*", default=list(zoo.CASES))
    parser.add_argument("--modes", nargs="*", default=["train", "infer"])
    parser.add_argument("--rounds", type=int, default=2)
    parser.add_argument("--json", type=Path)
    arguments = parser.parse_args()
    if arguments.worker:
        print(json.dumps(worker(*arguments.worker)))
        return
    columns = header()
    shown, tables = Table(*columns, packages=["transformers"]), {}
    for name in arguments.models:
        for mode in arguments.modes:
            try:
                tables[f"{name} {mode}"] = measure(name, mode, arguments.rounds)
            except RuntimeError as error:
                shown.row(f"{name} {mode} failed: {error}", *[""] * (len(columns) - 1))
                continue
            shown.row(*row(name, mode, tables[f"{name} {mode}"]))
    if tables:
        print("\n" + medians(list(tables.values())))
    if arguments.json:
        arguments.json.write_text(
            json.dumps({"versions": conditions("transformers"), "tables": tables}, indent=1)
        )


if __name__ == "__main__":
    if sys.argv[1:] == ["--dry"]:  # seconds of it, for the tests
        sys.argv[1:] = ["--worker", "fxstack", "mlp", "infer"]
    main()
