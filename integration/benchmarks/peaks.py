"""Peak memory of a training step in eager, under torch.compile and under fxstack, on CPU.

    python integration/benchmarks/peaks.py [MODEL ...] [--systems eager fxstack] [--markdown] [--dry]

Models are those of ``zoo.py`` (size ``bench``) and ``real/NAME`` of ``cuda_models.py`` with small batches. Each row runs in
a process of its own for each system; the third step is measured. The first figure is the peak of what torch's allocator has
handed out, beyond what is alive before the step, with the blocks that fxstack keeps between steps. The second is the growth
of the resident memory of the process over the step.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[2] / "testing"))

import torch
import zoo
from result_tables import Table

import fxstack
from fxstack_inductor.runtime.arena import shared_pool
from fxstack_partition.budgets.measure import peak_of_events

SYSTEMS = {"eager": lambda model: model, "torch.compile": torch.compile, "fxstack": fxstack.compile}
SMALLER = {"gpt2": (2, 512), "bert": (4, 256), "t5": (2, 256), "llama": (1, 256), "vit": (8,), "resnet": (8,)}
"""Rows, and tokens of a row, of real models: those of ``cuda_models.py`` are for a GPU."""


def case_of(name: str) -> zoo.Case:
    """The model and a batch."""
    folder, _, short = name.rpartition("/")
    if folder != "real":
        return zoo.build(name, zoo.BENCH)
    import cuda_models
    import transformers

    entry = cuda_models.REAL[short]
    config = getattr(transformers, entry.config)(**entry.extra)
    model = getattr(transformers, entry.model)(config)
    rows, *length = SMALLER[short]
    cut = (slice(rows), *map(slice, length))
    batch = {key: value[cut].contiguous() for key, value in entry.batch().items()}
    return zoo.Case(name, model, batch, lambda model, batch: model(**batch).loss)


def resident(key: str) -> int:
    """A figure of the process in /proc, in bytes."""
    lines = Path("/proc/self/status").read_text().splitlines()
    return next(int(line.split()[1]) * 1024 for line in lines if line.startswith(key))


def allocated_peak(step) -> int:
    """Bytes that a step has alive at most, beyond what was alive before it, and blocks kept between steps."""
    retained = sum(block.memory.nbytes for block in shared_pool().free)
    activities = [torch.profiler.ProfilerActivity.CPU]
    with torch.profiler.profile(activities=activities, profile_memory=True) as profiler:
        step()
    return peak_of_events(profiler) + retained


def measure(name: str, system: str) -> dict[str, int]:
    """The peaks of the third and the fourth step, in this process."""
    torch.manual_seed(0)
    case = case_of(name)
    case.model.train()
    model = SYSTEMS[system](case.model)

    def step() -> None:
        case.loss(model, case.batch).backward()

    def clear() -> None:
        case.model.zero_grad(set_to_none=True)

    for _ in range(2):
        step()
        clear()
    before = resident("VmRSS")
    Path("/proc/self/clear_refs").write_text("5")
    step()
    grown = resident("VmHWM") - before
    clear()
    return {"allocated": allocated_peak(step), "resident": grown}


def in_process(name: str, system: str) -> dict[str, int]:
    """``measure`` in a process of its own."""
    command = [sys.executable, __file__, name, "--systems", system, "--worker"]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode:
        raise RuntimeError(f"{name} under {system} failed:\n{done.stderr[-3000:]}")
    return json.loads(done.stdout.splitlines()[-1])


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("models", nargs="*", default=[*zoo.CASES, *(f"real/{name}" for name in SMALLER)])
    parser.add_argument("--systems", nargs="+", default=list(SYSTEMS), choices=SYSTEMS)
    parser.add_argument("--worker", action="store_true", help=argparse.SUPPRESS)
    parser.add_argument("--dry", action="store_true", help="one small model, for the tests")
    args = parser.parse_args()
    if args.worker:
        print(json.dumps(measure(args.models[0], args.systems[0])))
        return
    models, systems = (["mlp"], ["eager", "fxstack"]) if args.dry else (args.models, args.systems)
    columns = [f"{system} {kind} MiB" for kind in ("allocated", "resident") for system in systems]
    table = Table("model", *columns, "fxstack / eager", packages=("transformers",))
    for name in models:
        found = {system: in_process(name, system) for system in systems}
        sizes = [
            f"{found[system][kind] / 2**20:.1f}" for kind in ("allocated", "resident") for system in systems
        ]
        peaks = {system: figures["allocated"] for system, figures in found.items()}
        ratio = peaks["fxstack"] / peaks["eager"] if {"fxstack", "eager"} <= peaks.keys() else float("nan")
        table.row(name, *sizes, f"{ratio:.2f}")


if __name__ == "__main__":
    main()
