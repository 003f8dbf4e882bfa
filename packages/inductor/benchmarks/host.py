"""What the host program costs: ``python packages/inductor/benchmarks/host.py [--markdown]``.

Processor time of a call (so that other programs on the machine do not count), native and Python host, over graphs
of 4 and of 68 steps on tensors of 4 x 4; what a step costs is the difference divided by 64. ``mm`` is beside the same
calls made by eager, whose Python binding and dispatch are part of its figure.
"""

from __future__ import annotations

import sys
import time
from pathlib import Path
from typing import TYPE_CHECKING

sys.path.insert(0, str(Path(__file__).parents[3] / "testing"))
import torch
from result_tables import Table
from torch.fx.experimental.proxy_tensor import make_fx

import fxstack_inductor as fi

if TYPE_CHECKING:
    from collections.abc import Callable

CALLS, ROUNDS = 200, 25
X, W = torch.randn(4, 4), torch.randn(4, 4) / 4


def one_kernel(x, w):
    return x + w


def both(steps: int) -> Callable[..., torch.Tensor]:
    def fn(x, w):
        for _ in range(steps):
            x = (x @ w) + 1
        return x * w

    return fn


def products(steps: int) -> Callable[..., torch.Tensor]:
    def fn(x, w):
        for _ in range(steps):
            x = x @ w
        return x * w

    return fn


def calls_back(steps: int) -> Callable[..., torch.Tensor]:
    def fn(x, w):
        for _ in range(steps):
            x = x.sort(0)[0]
        return x * w

    return fn


def microseconds(call: Callable[[], object]) -> float:
    """The least processor time of a call, over rounds of many."""
    best = float("inf")
    for _ in range(ROUNDS):
        start = time.thread_time()
        for _ in range(CALLS):
            call()
        best = min(best, (time.thread_time() - start) / CALLS)
    return best * 1e6


def compiled(fn: Callable[..., torch.Tensor], host: str) -> Callable[[], object]:
    graph = make_fx(fn, decomposition_table=fi.decompositions(), tracing_mode="fake")(X, W)
    options = fi.InductorOptions(host=host)
    run = fi.compile_graph(graph, (X, W), options, check_arguments=False)
    return lambda: run(X, W)


def each_step(make: Callable[[int], Callable[..., torch.Tensor]], host: str) -> float:
    if host == "eager":
        few, many = (microseconds(lambda n=n: make(n)(X, W)) for n in (4, 68))
    else:
        few, many = (microseconds(compiled(make(n), host)) for n in (4, 68))
    return (many - few) / 64


def main() -> None:
    torch.set_num_threads(1)
    table = Table("a step of", "native us", "Python us", "eager us")
    with torch.no_grad():
        whole = [microseconds(compiled(one_kernel, host)) for host in ("native", "python")]
        table.row("whole call of one kernel", *(f"{us:.2f}" for us in whole), "")
        for name, make in (("mm", products), ("mm and kernel", both), ("sort (calls back)", calls_back)):
            found = [each_step(make, host) for host in ("native", "python", "eager")]
            table.row(name, *(f"{us:.2f}" for us in found))


if __name__ == "__main__":
    if sys.argv[1:] == ["--dry"]:  # seconds of it, for the tests
        sys.argv[1:] = []
        CALLS, ROUNDS = 2, 1
    main()
