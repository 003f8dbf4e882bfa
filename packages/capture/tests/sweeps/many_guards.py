"""How long the guards of one dynamic model take: a program over N tensors, each with a size and four branches on it.

    python packages/capture/tests/sweeps/many_guards.py [--markdown] [N ...]

Processor time of the first call in seconds, with a backend that runs the graph.
"""

import sys
import time
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[4] / "testing"))

import torch
from result_tables import Table

import fxstack_capture
from fxstack_capture import native


def branches(tensors):
    out = []
    for tensor in tensors:
        value = tensor
        if tensor.shape[0] > 3:
            value = value * 2
        if tensor.shape[0] * 2 > 10:
            value = value + 1
        if tensor.shape[0] % 2 == 0:
            value = value - 1
        if tensor.shape[0] + 3 < 100_000:
            value = value * 3
        out.append(value)
    return out


def measure(count, table):
    tensors = [torch.ones(6 + 2 * i) for i in range(count)]
    fxstack_capture.reset()
    compiled = fxstack_capture.optimize(lambda graph, _: graph.forward, dynamic=True)(branches)
    started = time.process_time()
    found = compiled(tensors)
    seconds = time.process_time() - started
    exact = all(map(torch.equal, found, branches(tensors)))
    guards = len(native.entries(branches.__code__)[0].tree.meta)
    table.row(f"{count:,}", f"{guards:,}", f"{seconds:.1f}", "exact" if exact else "WRONG")
    return exact


if __name__ == "__main__":
    if sys.argv[1:] == ["--dry"]:  # seconds of it, for the tests
        sys.argv[1:] = ["10"]
    counts = [int(count) for count in sys.argv[1:]] or [100, 400, 720]
    table = Table("N", "guards", "first call s", "results")
    sys.exit(not all([measure(count, table) for count in counts]))
