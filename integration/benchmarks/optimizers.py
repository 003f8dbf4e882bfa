"""A step of torch's optimizers over many parameters: eager and compiled alternate, and the first two steps compile.

    python integration/benchmarks/optimizers.py [--counts 10 200 2000] [--optimizers Adam AdamW SGD] [--kinds foreach fused plain]
        [--dry] [--markdown]

Parameters of 64 x 64 floats, one thread. Milliseconds are medians of processor time; seconds are processor time of the
first three steps, with the C compiler and without caches. The first step, which makes the state, runs in plain Python; where
no step makes state, the first step compiles."""

from __future__ import annotations

import argparse
import resource
import statistics
import sys
import time
from itertools import pairwise
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[2] / "testing"))
import torch
from result_tables import Table

import fxstack

SETTINGS = {"SGD": {"lr": 0.01, "momentum": 0.9}}
KINDS = {"foreach": {"foreach": True}, "fused": {"fused": True}, "plain": {"foreach": False}}
ROUNDS = 15


def optimizer(name: str, kind: str, count: int) -> torch.optim.Optimizer:
    torch.manual_seed(0)
    parameters = [torch.nn.Parameter(torch.randn(64, 64)) for _ in range(count)]
    for parameter in parameters:
        parameter.grad = torch.randn(64, 64)
    options = KINDS[kind] if name != "Muon" else {}
    return getattr(torch.optim, name)(parameters, **SETTINGS.get(name, {}), **options)


def processor_seconds() -> float:
    children = resource.getrusage(resource.RUSAGE_CHILDREN)
    return time.process_time() + children.ru_utime + children.ru_stime


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--counts", nargs="*", type=int, default=[10, 200, 2000])
    parser.add_argument("--optimizers", nargs="*", default=["Adam", "AdamW", "SGD"])
    parser.add_argument("--kinds", nargs="*", default=["foreach", "fused"], choices=KINDS)
    parser.add_argument("--dry", action="store_true", help="three parameters")
    options, _ = parser.parse_known_args()
    torch.set_num_threads(1)
    columns = (
        "parameters",
        "eager ms",
        "fxstack ms",
        "fxstack / eager",
        "first step s",
        "second step s",
        "third step s",
    )
    table = Table("optimizer", *columns)
    for count in [3] if options.dry else options.counts:
        for name in options.optimizers:
            for kind in options.kinds:
                eager, plain = optimizer(name, kind, count).step, optimizer(name, kind, count)
                step = fxstack.compile(plain.step, options={"use_cache": False})
                marks = [processor_seconds()]
                for _ in range(3):
                    step()
                    marks.append(processor_seconds())
                times: dict[object, list[float]] = {eager: [], step: []}
                for _ in range(2 if options.dry else ROUNDS):
                    for fn, found in times.items():
                        start = time.thread_time()
                        fn()
                        found.append((time.thread_time() - start) * 1e3)
                before, after = (statistics.median(found[1:]) for found in times.values())
                seconds = [f"{b - a:.1f}" for a, b in pairwise(marks)]
                ratio = f"{after / before:.2f}"
                table.row(f"{name}, {kind}", f"{count:,}", f"{before:.2f}", f"{after:.2f}", ratio, *seconds)


if __name__ == "__main__":
    main()
