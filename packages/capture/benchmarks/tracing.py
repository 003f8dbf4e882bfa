"""How long tracing takes: processor milliseconds per captured call, and whether it grows linearly.

    python packages/capture/benchmarks/tracing.py [--markdown]

Three kinds of program: straight calls, calls in inlined functions, calls in modules. Each is traced once per size after
a small one has warmed torch up; the backend does nothing. Processor time is little affected by other load.
"""

import sys
import time
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[3] / "testing"))

import torch
from result_tables import Table

import fxstack_capture


def straight(x, n):
    for _ in range(n):
        x = torch.sin(x) + 1
    return x


def step(x, scale=2.0):
    return torch.relu(x) * scale


def inlined(x, n):
    for _ in range(n // 2):
        x = step(x, scale=3.0)
    return x


def nested(x, n):
    return x if n <= 0 else nested(torch.cos(x), n - 1)


class Block(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.first, self.second = torch.nn.Linear(4, 4), torch.nn.LayerNorm(4)

    def forward(self, x):
        return x + self.second(torch.nn.functional.gelu(self.first(x)))


class Meter:
    def __init__(self):
        self.seconds = 0.0
        self.calls = 0

    def backend(self, graph_module, _inputs):
        self.calls += sum(node.op != "placeholder" for node in graph_module.graph.nodes) - 1
        return graph_module.forward


def measure(fn, *args):
    """Processor milliseconds of a first call, and the calls that it captured."""
    meter = Meter()
    compiled = fxstack_capture.optimize(meter.backend)(fn)
    started = time.process_time()
    compiled(*args)
    seconds = time.process_time() - started
    fxstack_capture.reset()
    return seconds * 1e3, meter.calls


def modules(count):
    return torch.nn.Sequential(*(Block() for _ in range(count)))


SIZES, DEPTHS, MODULES = (100, 1000, 2500, 5000), (50, 200, 390), (10, 50, 200)


def main():
    x = torch.randn(4, 4)
    for fn in (straight, inlined):
        measure(fn, x, 10)
    measure(modules(1), x)
    cases = [(fn.__name__, fn, n) for fn in (straight, inlined) for n in SIZES]
    cases += [("nested", nested, n) for n in DEPTHS]
    table = Table("program", "size", "captured calls", "ms", "ms a call")
    for name, fn, n in cases:
        report(table, name, n, *measure(fn, x, n))
    for n in MODULES:
        report(table, "modules", n, *measure(modules(n), x))


def report(table, name, size, milliseconds, calls):
    per_call = milliseconds / max(calls, 1)
    table.row(name, size, calls, f"{milliseconds:.1f}", f"{per_call:.3f}")


if __name__ == "__main__":
    if sys.argv[1:] == ["--dry"]:  # seconds of it, for the tests
        sys.argv[1:] = []
        SIZES, DEPTHS, MODULES = (10,), (5,), (2,)
    main()
