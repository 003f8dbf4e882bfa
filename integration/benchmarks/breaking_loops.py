"""Loops over time steps that break the graph, beside lists that grow: microseconds a step, for several lengths.

    python integration/benchmarks/breaking_loops.py [--dry]

Eager, fxstack and torch.compile side by side: medians, and their ratios to eager. A cost that grows with the length of a
list shows as a row whose figures rise with the number of steps.
"""

from __future__ import annotations

import argparse
import statistics
import time
import warnings

import torch
import torch._dynamo

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


torch.manual_seed(0)
LAYERS = [torch.nn.Linear(64, 64) for _ in range(12)]
PROGRAMS = (growing, window, delay, layers, solver)
SYSTEMS = {
    "eager": lambda fn: fn,
    "fxstack": fxstack.compile,
    "torch.compile": torch.compile,
}


def per_step(fn, args, steps: int, rounds: int) -> float:
    """Median microseconds a step, after two calls."""
    fn(*args)
    fn(*args)
    seconds = []
    for _ in range(rounds):
        start = time.perf_counter()
        fn(*args)
        seconds.append(time.perf_counter() - start)
    return statistics.median(seconds) / steps * 1e6


def measure(program, steps: int, rounds: int) -> dict[str, float]:
    args = torch.rand(steps, 64), torch.tensor(False), steps
    expected, found = program(*args), {}
    for name, system in SYSTEMS.items():
        torch._dynamo.reset()
        fn = system(program)
        torch.testing.assert_close(fn(*args), expected)
        found[name] = per_step(fn, args, steps, rounds)
    return found


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--dry", action="store_true", help="one short loop of each program")
    parser.add_argument("--rounds", type=int, default=9)
    options = parser.parse_args()
    lengths = (20,) if options.dry else (100, 200, 400)
    warnings.simplefilter("ignore")
    print(
        "| program | steps | eager | fxstack | torch.compile | fxstack / eager | torch.compile / eager |"
    )
    print("|---|---|---|---|---|---|---|")
    for program in PROGRAMS:
        for steps in lengths:
            us = measure(program, steps, 1 if options.dry else options.rounds)
            ratios = [us[name] / us["eager"] for name in ("fxstack", "torch.compile")]
            cells = [f"{us[name]:.1f}" for name in SYSTEMS] + [f"{ratio:.2f}" for ratio in ratios]
            print(f"| {program.__name__} | {steps} | {' | '.join(cells)} |", flush=True)


if __name__ == "__main__":
    with torch.no_grad():
        main()
