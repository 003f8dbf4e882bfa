"""What stays in memory after compile, call, delete: a new module in a new function each time.

    python integration/tests/sweeps/cycles.py [CYCLES [BACKEND]]

Prints resident memory, objects and torch's entries of generated source at ten points; BACKEND is "eager" (default),
"aot_eager" or "inductor".
"""

import gc
import linecache
import os
import sys
import time
import weakref
from pathlib import Path

import torch
from torch import nn

import fxstack


def resident():
    pages = int(Path("/proc/self/statm").read_text().split()[1])
    return pages * os.sysconf("SC_PAGE_SIZE") / 2**10


def generated():
    """Sources of generated graph code that torch keeps."""
    return sum(name.startswith("<eval_with_key>") for name in linecache.cache)


def cycle(backend):
    module = nn.Sequential(nn.Linear(4, 4), nn.ReLU())

    def step(x):
        return module(x) * 2

    compiled = fxstack.compile(step, backend=backend)
    for _ in range(2):
        compiled(torch.ones(2, 4))
    return weakref.ref(module)


def main(cycles=20_000, backend="eager"):
    alive, before, at, started = [], None, 0, time.perf_counter()
    for done in range(1, cycles + 1):
        alive.append(cycle(backend))
        if done % max(1, cycles // 10) == 0:
            gc.collect()
            alive = [ref for ref in alive if ref() is not None]
            now = resident(), len(gc.get_objects()), generated()
            grown = "" if before is None else f"{(now[0] - before[0]) / (done - at):.2f} KiB a cycle"
            print(
                f"{done:7} cycles: {now[0]:,.0f} KiB, {now[1]:,} objects, {now[2]} sources, "
                f"{len(alive)} modules alive  {grown}",
                flush=True,
            )
            before, at = now, done
    print(f"{cycles} cycles, {backend}, {time.perf_counter() - started:.0f} s")
    return len(alive)


if __name__ == "__main__":
    if sys.argv[1:] == ["--dry"]:  # seconds of it, for the tests
        sys.argv[1:] = ["10"]
    arguments = sys.argv[1:]
    sys.exit(main(*map(int, arguments[:1]), *arguments[1:]) > 0)
