"""What a call of a fully compiled program costs, beside torch.compile with its own default backend in the same process.

    python integration/benchmarks/call_overhead.py [--markdown] [WORKLOAD ...]

The workloads of ``packages/capture/benchmarks/overhead.py``: tensors so small that a call is nearly all overhead; without
gradients. Processor time of the thread, medians of interleaved rounds, nanoseconds a call: the whole call of each, and of ours
the part that is hook and wrapper, the part that is guards (timed natively) and the rest, the compiled graph.
"""

from __future__ import annotations

import statistics
import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[2] / "packages/capture/benchmarks"))
sys.path.insert(0, str(Path(__file__).parents[2] / "testing"))

import overhead
import torch
from result_tables import Table

import fxstack
from fxstack_capture.guards.tensor_build import TENSOR_CHECKS

ROUNDS = 15


def interleaved(compiled, args, calls):
    """The median of each of ``compiled``, in nanoseconds a call."""
    rounds = [[overhead.once(fn, args, calls) for fn in compiled] for _ in range(ROUNDS)]
    return [statistics.median(column) for column in zip(*rounds, strict=True)]


def without_graph(fn, args, calls):
    """Ours with a graph that costs nothing: hook, guards and wrapper."""
    fxstack.reset()
    compiled = fxstack.compile(fn, backend=overhead.frozen)
    for _ in range(5):
        compiled(*args)
    (total,) = interleaved([compiled], args, calls)
    return total, overhead.check_time(overhead.guards_of(fn, args))


def measure(workload, table):
    fn, args = workload.make()
    calls = 100 if workload.name == "200 blocks" else 1000
    bare, guards = without_graph(fn, args, calls)
    fxstack.reset()
    torch._dynamo.reset()
    both = [fxstack.compile(fn), torch.compile(fn)]
    for compiled in both:
        for _ in range(5):
            compiled(*args)
    ours, theirs = interleaved(both, args, calls)
    parts = [f"{part:,.0f}" for part in (bare - guards, guards, ours - bare)]
    table.row(workload.name, f"{ours:,.0f}", f"{theirs:,.0f}", f"{ours / theirs:.2f}", *parts)


def main(*names):
    TENSOR_CHECKS.wait()
    parts = "hook and wrapper ns", "guards ns", "compiled graph ns"
    table = Table("workload", "fxstack ns", "torch.compile ns", "ratio", *parts)
    with torch.no_grad():
        for workload in overhead.WORKLOADS:
            if not names or workload.name in names:
                measure(workload, table)


if __name__ == "__main__":
    if sys.argv[1:] == ["--dry"]:  # seconds of it, for the tests
        sys.argv[1:] = ["two operations"]
        ROUNDS = 1
    main(*sys.argv[1:])
