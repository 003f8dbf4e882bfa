"""The time of a step compiled for any size beside one compiled for the present sizes: small modules and the model list.

    python integration/tests/sweeps/dynamic_steps.py [--markdown] [MODEL ...]

A model is called with two sizes, so that what it is compiled to for the second fits any; that step is compared with one
compiled for the second size alone. Processor time of the process, medians of interleaved rounds, forward alone; the
target is a ratio of at most 1.1.
"""

from __future__ import annotations

import copy
import os
import statistics
import sys
import time
import warnings
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[3] / "testing"))

import dynamic_models
import torch
import zoo
from result_tables import Table
from torch import nn

import fxstack

os.environ.setdefault("FXSTACK_RAISE_FAILURES", "1")  # a defect is no fallback here

ROUNDS, ROUND_SECONDS = 31, 0.03
FIRST, SECOND = (2, 9), (3, 8)
"""(rows, length of texts)"""


def perceptron():
    return nn.Sequential(nn.Linear(64, 256), nn.GELU(), nn.LayerNorm(256), nn.Linear(256, 64))


def encoder():
    return nn.TransformerEncoderLayer(64, 4, 128, batch_first=True, dropout=0.0)


def convolutions():
    return nn.Sequential(nn.Conv2d(3, 16, 3), nn.BatchNorm2d(16), nn.ReLU(), nn.Conv2d(16, 8, 3))


MODULES = {
    "perceptron": (perceptron, (33, 64), (64, 64)),
    "encoder": (encoder, (5, 17, 64), (8, 32, 64)),
    "convolutions": (convolutions, (5, 3, 20, 20), (8, 3, 24, 24)),
}


def case(name):
    """(module, arguments of the first size, of the second)."""
    if name in MODULES:
        make, *shapes = MODULES[name]
        return make().eval(), *({"input": torch.randn(shape)} for shape in shapes)
    found = zoo.build(name)
    return found.model.eval(), *(dynamic_models.resized(found.batch, *size) for size in (FIRST, SECOND))


def caller(compiled, arguments):
    if list(arguments) == ["input"]:
        return lambda: compiled(arguments["input"])
    return lambda: compiled(**arguments)


def seconds(step, calls):
    start = time.process_time()
    for _ in range(calls):
        step()
    return (time.process_time() - start) / calls


def close(found, expected):
    pairs = zip(dynamic_models.flat(found), dynamic_models.flat(expected), strict=True)
    return all(torch.allclose(a, b, rtol=1e-3, atol=1e-4) for a, b in pairs)


def measure(name, table):
    model, first, second = case(name)
    static = fxstack.compile(copy.deepcopy(model), dynamic=False)
    dynamic = fxstack.compile(copy.deepcopy(model))
    with torch.no_grad():
        caller(dynamic, first)()
        steps = [caller(compiled, second) for compiled in (static, dynamic)]
        expected = caller(model, second)()
        assert all(close(step(), expected) for step in steps)
        calls = max(1, int(ROUND_SECONDS / max(seconds(steps[0], 3), 1e-5)))
        rounds = [[seconds(step, calls) for step in steps] for _ in range(ROUNDS)]
    mine, any_size = (statistics.median(column) * 1e6 for column in zip(*rounds, strict=True))
    ratio = statistics.median(dynamic / static for static, dynamic in rounds)
    table.row(name, f"{mine:.1f}", f"{any_size:.1f}", f"{ratio:.2f}")
    return ratio


def main(*names):
    warnings.simplefilter("ignore")
    names = names or [*MODULES, *zoo.CASES]
    table, slow = Table("model", "static, us", "any size, us", "ratio"), []
    for name in names:
        fxstack.reset()
        if measure(name, table) > 1.1:
            slow.append(name)
    print(f"\n{len(slow)} of {len(names)} steps more than 10% slower: {', '.join(slow) or 'none'}")


if __name__ == "__main__":
    if sys.argv[1:] == ["--dry"]:  # seconds of it, for the tests
        sys.argv[1:] = ["mlp"]
        ROUNDS, ROUND_SECONDS = 1, 0.001
    main(*sys.argv[1:])
