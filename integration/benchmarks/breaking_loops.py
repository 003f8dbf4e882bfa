"""Loops over time steps that break the graph, beside lists that grow: microseconds a step, for several lengths.

    python integration/benchmarks/breaking_loops.py [--dry] [--markdown]

Eager, fxstack and torch.compile side by side: medians, and their ratios to eager, once fxstack has settled (32 calls). A cost
that grows with the length of a list shows as a row whose figures rise with the number of steps. "Left alone" says that
fxstack has found plain Python faster.
"""

from __future__ import annotations

import argparse
import statistics
import sys
import time
import warnings
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[2] / "testing"))
import torch
import torch._dynamo
from result_tables import Table

import fxstack


def growing(x, flag, steps):
    """Results are kept, and the last one is read."""
    out = [x[0]]
    for i in range(steps):
        out.append(x[i] * 2 + out[-1] * 0.5)
        if flag.item():
            break
    return torch.stack(out)


def window(x, flag, steps):
    """A short list is made anew in every step."""
    last = [x[0]] * 3
    for i in range(steps):
        last = [*last[1:], x[i] + last[0]]
        if flag.item():
            break
    return last[-1]


def delay(x, _flag, steps):
    """A line of delayed samples, read at places that depend on data (as an audio phaser does)."""
    line = [x[0]] * 8
    out = []
    for i in range(steps):
        place = int(x[i, 0] * 8) % 8
        sample = x[i] + line[place] * 0.4
        line[(i + 1) % 8] = sample
        out.append(sample)
    return torch.stack(out)


def layers(x, flag, steps):
    """Layers by their number."""
    y = x[:8]
    for i in range(steps):
        y = torch.relu(LAYERS[i % 12](y))
        if flag.item():
            break
    return y


def solver(x, _flag, steps):
    """Steps of a solver that looks at its error."""
    y, rate = x[0], 0.1
    for _ in range(steps):
        change = rate * torch.tanh(y) * torch.exp(-y * y) + 0.01 * torch.sin(y)
        y = y + change
        if change.abs().max().item() > 10:
            rate = rate / 2
    return y


def beam(x, _flag, steps):
    """Three hypotheses, each with small tensors of its own, and numbers in Python."""
    beams = [([], 0.0, x[0])]
    for i in range(steps // 10):
        found = []
        for tokens, score, state in beams:
            best, places = torch.log_softmax(LAYERS[i % 12](state), -1).topk(3)
            for value, place in zip(best.tolist(), places.tolist(), strict=True):
                found.append(([*tokens, place], score + value, torch.tanh(state + place * 0.01)))
        beams = sorted(found, key=lambda each: -each[1])[:3]
    return torch.tensor(beams[0][0])


def suppression(x, _flag, steps):
    """Boxes that overlap a better one are dropped, until none is left."""
    low, high = x[:steps, :2], x[:steps, :2] + x[:steps, 2:4]
    left, kept = x[:steps, 4].argsort(descending=True), []
    while left.numel() > 0:
        first, rest = left[0], left[1:]
        kept.append(int(first))
        sides = torch.minimum(high[first], high[rest]) - torch.maximum(low[first], low[rest])
        shared = sides.clamp(min=0).prod(-1)
        both = (high - low).prod(-1)
        left = rest[shared / (both[first] + both[rest] - shared) < 0.3]
    return torch.tensor(kept)


torch.manual_seed(0)
LAYERS = [torch.nn.Linear(64, 64) for _ in range(12)]
PROGRAMS = (growing, window, delay, layers, solver, beam, suppression)
SETTLING = 32
SYSTEMS = {"eager": lambda fn: fn, "fxstack": fxstack.compile, "torch.compile": torch.compile}


def per_step(fn, args, steps: int, rounds: int) -> float:
    """Median microseconds a step."""
    seconds = []
    for _ in range(rounds):
        start = time.perf_counter()
        fn(*args)
        seconds.append(time.perf_counter() - start)
    return statistics.median(seconds) / steps * 1e6


def measure(program, steps: int, rounds: int) -> tuple[dict[str, float], bool]:
    """By system; and whether fxstack has left the program alone."""
    alone = False
    args = torch.rand(steps, 64), torch.tensor(False), steps
    expected, found = program(*args), {}
    for name, system in SYSTEMS.items():
        torch._dynamo.reset()
        fn = system(program)
        torch.testing.assert_close(fn(*args), expected)
        for _ in range(SETTLING if rounds > 1 else 2):
            fn(*args)
        found[name] = per_step(fn, args, steps, rounds)
        alone |= getattr(fn, "plain_calls", 0) > 0
    return found, alone


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--dry", action="store_true", help="one short loop of each program")
    parser.add_argument("--rounds", type=int, default=9)
    options = parser.parse_args()
    lengths = (20,) if options.dry else (100, 200, 400)
    warnings.simplefilter("ignore")
    ratios = "fxstack / eager", "torch.compile / eager"
    table = Table("program", "steps", *SYSTEMS, *ratios, "left alone")
    for program in PROGRAMS:
        for steps in lengths:
            us, alone = measure(program, steps, 1 if options.dry else options.rounds)
            ratios = [us[name] / us["eager"] for name in ("fxstack", "torch.compile")]
            cells = [f"{us[name]:.1f}" for name in SYSTEMS] + [f"{ratio:.2f}" for ratio in ratios]
            table.row(program.__name__, steps, *cells, "yes" if alone else "")


if __name__ == "__main__":
    with torch.no_grad():
        main()
