"""The time of a step compiled for any size beside one compiled for the present sizes.

    python integration/tests/sweeps/dynamic_steps.py

Processor time of the process, medians of interleaved rounds, forward alone; the target is a ratio of at most 1.1.
"""

import statistics
import sys
import time

import torch
from torch import nn

import fxstack


def mlp():
    return nn.Sequential(nn.Linear(64, 256), nn.GELU(), nn.LayerNorm(256), nn.Linear(256, 64))


def encoder():
    return nn.TransformerEncoderLayer(64, 4, 128, batch_first=True, dropout=0.0)


def convolutions():
    return nn.Sequential(nn.Conv2d(3, 16, 3), nn.BatchNorm2d(16), nn.ReLU(), nn.Conv2d(16, 8, 3))


MODELS = {
    "mlp": (mlp, (64, 64), (33, 64)),
    "encoder": (encoder, (8, 32, 64), (5, 17, 64)),
    "convolutions": (convolutions, (8, 3, 24, 24), (5, 3, 20, 20)),
}


def once(fn, x, calls=20):
    start = time.process_time_ns()
    for _ in range(calls):
        fn(x)
    return (time.process_time_ns() - start) / calls / 1e3


def measure(name):
    make, shape, other = MODELS[name]
    model, x, y = make().eval(), torch.randn(shape), torch.randn(other)
    static, dynamic = (fxstack.compile(model, dynamic=d) for d in (False, True))
    with torch.no_grad():
        for fn in (static, dynamic):
            assert torch.allclose(fn(x), model(x), atol=1e-5)
        assert torch.allclose(dynamic(y), model(y), atol=1e-5)
        rounds = [(once(static, x), once(dynamic, x)) for _ in range(25)]
    mine, symbolic = (statistics.median(column) for column in zip(*rounds, strict=True))
    print(f"{name:14} static {mine:8.1f} us, dynamic {symbolic:8.1f} us, {symbolic / mine:.3f}")


if __name__ == "__main__":
    for chosen in sys.argv[1:] or MODELS:
        measure(chosen)
