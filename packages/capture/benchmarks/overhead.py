"""What a call of a compiled function costs beyond its graph, beside torch.compile in the same process.

    python packages/capture/benchmarks/overhead.py [--markdown] [WORKLOAD ...]

Both compile with a backend that keeps the first results of the graph and returns them: what is left is the hook, the
guards and the wrapper. Processor time of the thread, medians of interleaved rounds, nanoseconds a call. ``guards``
is one check of our guard tree, timed natively, and ``number`` how many guards it holds.
"""

from __future__ import annotations

import statistics
import sys
import time
from dataclasses import dataclass
from itertools import repeat
from pathlib import Path
from typing import TYPE_CHECKING

sys.path.insert(0, str(Path(__file__).parents[3] / "testing"))
import torch
from result_tables import Table
from torch import nn

import fxstack_capture
from fxstack_capture import native
from fxstack_capture.guards.tensor_build import TENSOR_CHECKS

if TYPE_CHECKING:
    from collections.abc import Callable

ROUNDS = 15


def two_ops(x, y):
    return torch.relu(x + y)


class Mlp(nn.Module):
    def __init__(self, depth):
        super().__init__()
        self.layers = nn.ModuleList(nn.Linear(4, 4) for _ in range(depth))

    def forward(self, x):
        for layer in self.layers:
            x = torch.relu(layer(x))
        return x


class Residual(nn.Module):
    def __init__(self):
        super().__init__()
        self.norm = nn.LayerNorm(4)
        self.inner = nn.Sequential(nn.Linear(4, 4), nn.GELU(), nn.Dropout(0.1))

    def forward(self, x):
        return x + self.inner(self.norm(x))


class Cache:
    """Keys and values of the past, as a decoder's cache object holds them."""

    def __init__(self, layers):
        self.keys = [torch.zeros(1, 2, 8, 4) for _ in range(layers)]
        self.values = [torch.zeros(1, 2, 8, 4) for _ in range(layers)]
        self.position = torch.zeros(1, dtype=torch.int64)

    def update(self, layer, key, value):
        self.keys[layer].index_copy_(2, self.position, key)
        self.values[layer].index_copy_(2, self.position, value)
        return self.keys[layer], self.values[layer]


def _heads(tensor):
    return tensor.view(1, 1, 2, 4).transpose(1, 2)


class RmsNorm(nn.Module):
    def __init__(self, size):
        super().__init__()
        self.weight = nn.Parameter(torch.ones(size))
        self.epsilon = 1e-6

    def forward(self, x):
        return x * torch.rsqrt(x.pow(2).mean(-1, keepdim=True) + self.epsilon) * self.weight


class DecoderLayer(nn.Module):
    def __init__(self, index, size=8):
        super().__init__()
        self.index = index
        self.before, self.after = RmsNorm(size), RmsNorm(size)
        self.q, self.k, self.v, self.o = (nn.Linear(size, size, bias=False) for _ in range(4))
        self.gate, self.up, self.down = (nn.Linear(size, size, bias=False) for _ in range(3))

    def forward(self, x, cache):
        y = self.before(x)
        key, value = cache.update(self.index, _heads(self.k(y)), _heads(self.v(y)))
        y = nn.functional.scaled_dot_product_attention(_heads(self.q(y)), key, value)
        x = x + self.o(y.transpose(1, 2).reshape(1, 1, 8))
        y = self.after(x)
        return x + self.down(nn.functional.silu(self.gate(y)) * self.up(y))


class Decoder(nn.Module):
    def __init__(self, depth):
        super().__init__()
        self.layers = nn.ModuleList(DecoderLayer(i) for i in range(depth))
        self.norm = RmsNorm(8)

    def forward(self, x, cache):
        for layer in self.layers:
            x = layer(x, cache)
        return self.norm(x)


def dictionary(tensors):
    total = 0
    for name, tensor in tensors.items():
        if name:
            total = total + tensor
    return total


@dataclass(frozen=True)
class Workload:
    name: str
    make: Callable[[], tuple[Callable, tuple]]


WORKLOADS = [
    Workload("two operations", lambda: (two_ops, (torch.ones(4), torch.ones(4)))),
    Workload("MLP, 20 layers", lambda: (Mlp(20), (torch.ones(2, 4),))),
    Workload("200 blocks", lambda: (nn.Sequential(*(Residual() for _ in range(200))), (torch.ones(2, 4),))),
    Workload("decoder step, cache", lambda: (Decoder(8), (torch.ones(1, 1, 8), Cache(8)))),
    Workload("dict of 50 tensors", lambda: (dictionary, ({f"t{i}": torch.ones(4) for i in range(50)},))),
]


def frozen(graph_module, _inputs):
    """A backend whose graphs run once."""
    kept = []

    def run(*args):
        if not kept:
            kept.append(graph_module.forward(*args))
        return kept[0]

    return run


def once(fn, args, calls):
    iterations = repeat(None, calls)
    start = time.thread_time_ns()
    for _ in iterations:
        fn(*args)
    return (time.thread_time_ns() - start) / calls


def check_time(compiled_owner_code):
    """Nanoseconds of one check of the guards of the entry of a code object."""
    entry, fn, arguments = compiled_owner_code
    return min(native.time_check(entry.tree, fn, arguments, 2000) for _ in range(9))


def guards_of(fn, args):
    """(entry, function, arguments) of the frame that was compiled."""
    function = fn.forward.__func__ if isinstance(fn, nn.Module) else fn
    arguments = (fn, *args) if isinstance(fn, nn.Module) else args
    if isinstance(fn, nn.Module):
        call = nn.Module._wrapped_call_impl
        found = native.entries(call.__code__)
        if found:
            return found[0], call, (fn, args, {})
    return native.entries(function.__code__)[0], function, arguments


def measure(workload, table):
    fn, args = workload.make()
    calls = 300 if workload.name == "200 blocks" else 3000
    torch._dynamo.reset()
    fxstack_capture.reset()
    ours = fxstack_capture.optimize(frozen)(fn)
    theirs = torch.compile(fn, backend=frozen)
    for compiled in (ours, theirs):
        for _ in range(5):
            compiled(*args)
    rounds = [(once(ours, args, calls), once(theirs, args, calls)) for _ in range(ROUNDS)]
    mine, other = (statistics.median(column) for column in zip(*rounds, strict=True))
    tree = check_time(guards_of(fn, args))
    guards = len(guards_of(fn, args)[0].tree.meta)
    figures = f"{mine:,.0f}", f"{other:,.0f}", f"{mine / other:.3f}", f"{tree:,.0f}", f"{guards:,}"
    table.row(workload.name, *figures)


def main(*names):
    TENSOR_CHECKS.wait()
    table = Table("workload", "fxstack ns", "torch.compile ns", "ratio", "guards ns", "number of guards")
    for workload in WORKLOADS:
        if not names or workload.name in names:
            measure(workload, table)


if __name__ == "__main__":
    if sys.argv[1:] == ["--dry"]:  # seconds of it, for the tests
        sys.argv[1:] = ["two operations"]
        ROUNDS = 1
    main(*sys.argv[1:])
