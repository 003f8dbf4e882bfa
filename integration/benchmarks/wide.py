"""A step of many model types: eager, torch.compile and fxstack alternate within a process, in processor time.

    python wide.py [--models swin mamba ...] [--modes infer train] [--rounds 31] [--systems eager torch.compile fxstack]
        [--images 1 4] [--markdown]

A figure is the median over rounds of the processor time of the calling thread (one thread), which other programs on
the machine distort least. Each model and mode has a process of its own, since compilers share state between models.
``--images`` measures the inference of networks of convolutions at their real sizes instead, on batches of these sizes. Rows
whose step is more than 3% slower than the faster of the other two are marked.
"""

from __future__ import annotations

import argparse
import json
import math
import statistics
import subprocess
import sys
import time
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[2] / "testing"))

from result_tables import Table

SYSTEMS = ("eager", "torch.compile", "fxstack")
MODES = ("infer", "train")
SLOWER = 1.03


def _compiled(system: str, model):
    import torch

    import fxstack

    torch._dynamo.reset() if system == "torch.compile" else None
    make = {"eager": lambda m: m, "torch.compile": torch.compile, "fxstack": fxstack.compile}
    return make[system](model)


def _loss(output):
    import torch
    from torch.utils import _pytree as pytree

    parts = output if isinstance(output, torch.Tensor) else dict(output)
    values = [v for v in pytree.tree_leaves(parts) if isinstance(v, torch.Tensor)]
    return sum(v.square().mean() for v in values if v.is_floating_point() and v.requires_grad)


def _step(model, batch, mode: str) -> None:
    import torch

    if mode == "train":
        _loss(model(**batch)).backward()
        model.zero_grad(set_to_none=True)
    else:
        with torch.no_grad():
            model(**batch)


def worker(name: str, mode: str, rounds: int, systems: list[str]) -> dict[str, float]:
    """Median milliseconds of a step by system; ``infinity`` for one that does not run."""
    import torch
    import wide_zoo

    torch.set_num_threads(1)
    model, batch = wide_zoo.build(name)
    model.train(mode == "train")
    runs, failed = {}, {}
    for system in systems:
        call = _compiled(system, model)
        try:
            for _ in range(3):
                _step(call, batch, mode)
            runs[system] = call
        except Exception as error:
            failed[system] = math.inf
            print(f"{name} {mode} {system}: {type(error).__name__}: {error}"[:300], file=sys.stderr)
    times: dict[str, list[float]] = {system: [] for system in runs}
    for _ in range(rounds):
        for system, call in runs.items():
            start = time.thread_time()
            _step(call, batch, mode)
            times[system].append((time.thread_time() - start) * 1e3)
    return {**{system: statistics.median(t) for system, t in times.items()}, **failed}


def row(name: str, mode: str, found: dict[str, float]) -> list[str]:
    ours = found.get("fxstack", math.inf)
    others = {s: found[s] for s in SYSTEMS[:2] if s in found}
    figures = [f"{found[s]:.2f}" if s in found else "" for s in SYSTEMS]
    ratios = [f"{ours / others[s]:.2f}" if s in others else "" for s in SYSTEMS[:2]]
    mark = " **slower**" if others and ours > SLOWER * min(others.values()) else ""
    return [f"{name} {mode}{mark}", *figures, *ratios]


def summary(results: list[dict[str, float]]) -> str:
    text = []
    for other in SYSTEMS[:2]:
        pairs = [(r.get("fxstack", math.inf), r.get(other, math.inf)) for r in results]
        ratios = [a / b for a, b in pairs if math.isfinite(a) and math.isfinite(b)]
        if ratios:
            mean = math.exp(statistics.fmean(map(math.log, ratios)))
            text.append(
                f"fxstack / {other}: geometric mean {mean:.3f} of {len(ratios)}, worst {max(ratios):.2f}"
            )
    return "\n".join(text)


def main() -> None:
    import wide_zoo

    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--models", nargs="*", default=list(wide_zoo.ENTRIES))
    parser.add_argument("--modes", nargs="*", default=list(MODES))
    parser.add_argument("--systems", nargs="*", default=list(SYSTEMS))
    parser.add_argument("--rounds", type=int, default=31)
    parser.add_argument("--worker", action="store_true")
    parser.add_argument("--images", nargs="*", type=int)
    arguments = parser.parse_args()
    if arguments.images:
        arguments.models = [f"{name} x{count}" for name in wide_zoo.IMAGES for count in arguments.images]
        arguments.modes = ["infer"]
    if arguments.worker:
        name, mode = arguments.models[0], arguments.modes[0]
        print(json.dumps(worker(name, mode, arguments.rounds, arguments.systems)))
        return
    columns = "eager ms", "torch.compile ms", "fxstack ms", "/ eager", "/ torch.compile"
    table = Table("model", *columns, packages=["transformers"])
    results = []
    for name in arguments.models:
        for mode in arguments.modes:
            command = [sys.executable, __file__, "--worker", "--models", name, "--modes", mode]
            command += ["--rounds", str(arguments.rounds), "--systems", *arguments.systems]
            done = subprocess.run(command, stdout=subprocess.PIPE, text=True, check=False)
            if done.returncode:
                table.row(f"{name} {mode} failed", *[""] * len(columns))
                continue
            results.append(json.loads(done.stdout.strip().splitlines()[-1]))
            table.row(*row(name, mode, results[-1]))
    print("\n" + summary(results))


if __name__ == "__main__":
    if sys.argv[1:] == ["--dry"]:  # seconds of it, for the tests
        sys.argv[1:] = [
            "--models",
            "opt",
            "--modes",
            "infer",
            "--rounds",
            "1",
            "--systems",
            "eager",
            "fxstack",
        ]
    main()
