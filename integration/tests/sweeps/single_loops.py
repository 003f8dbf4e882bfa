"""Loops and branches with varied operands (dtype, strides, aliases, no iterations), compiled and in plain Python.

    python integration/tests/sweeps/single_loops.py [--backend inductor] [--start 0] [--programs 1000] [--batch 20]
        [--seconds N] [--dry]

Each program is one operator. The programs of a batch are one compiled function, which is called twice. Results and
gradients are compared with plain Python. Run with ``MALLOC_PERTURB_=165`` to show reads of uninitialised memory.
"""

from __future__ import annotations

import argparse
import logging
import random
import sys
import time
import warnings
from collections.abc import Callable, Sequence
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import torch
from torch import Tensor

sys.path.insert(0, str(Path(__file__).parents[1]))

from hop_programs import PLAIN, TORCHS, leaf_difference

import fxstack

Subject = Callable[[Any, Tensor, Tensor, Tensor], Sequence[Tensor]]
"""Takes the operators, a matrix, another one and an integer vector; returns the results."""
LAYOUTS: tuple[Callable[[Tensor], Tensor], ...] = (
    lambda t: t,
    lambda t: t.clone(),
    lambda t: t.t().contiguous().t(),
    lambda t: t.repeat_interleave(2, 1)[:, ::2],
    lambda t: torch.cat([t, t])[1 : 1 + t.shape[0]],
    lambda t: t[:1].expand(t.shape),
    lambda t: t.flip(0),
)
DTYPES = (torch.float32, torch.float32, torch.float64, torch.int64, torch.int32, torch.bfloat16)
STEPS: tuple[Callable[[Tensor, Tensor], Tensor], ...] = (
    lambda a, b: torch.maximum(a, b) - a,
    lambda a, _b: -a,
    lambda a, b: torch.where(a > b, a, b - a),
    lambda _a, b: b * 1,
    lambda a, _b: a.flip(-1),
    lambda a, b: torch.cat([a.reshape(-1)[:1], b.reshape(-1)[1:]]).reshape(a.shape),
    lambda a, _b: a,
    lambda a, _b: a.clone(),
)
"""Steps whose results have no rounding, so that all dtypes are compared."""
MIXES: tuple[Callable[[Tensor, Tensor], Tensor], ...] = (
    lambda a, b: a * 0.5 + b,
    lambda a, b: (a - b).sin(),
    lambda a, b: a.softmax(-1) + b * 0.25,
    lambda a, b: a - b.mean(),
)
"""Steps for ``float32`` and ``float64``."""


def subject(seed: int) -> Subject:
    """Return the program of a seed."""
    rng = random.Random(seed)
    kind = rng.choice(["while", "while", "scan", "scan", "map", "cond"])
    dtype, layouts = rng.choice(DTYPES), [rng.choice(LAYOUTS) for _ in range(2)]
    steps = [rng.choice(STEPS + MIXES * (dtype in (torch.float32, torch.float64))) for _ in range(3)]
    aliased, swapped, reverse = rng.random() < 0.2, rng.random() < 0.3, rng.random() < 0.3
    rounds, length, dim = rng.choice([0, 0, 1, 2, 3, 5]), rng.choice([1, 1, 2, 3, 4]), rng.choice([0, 0, 1])
    outputs, other = rng.randint(1, 3), rng.random() < 0.3

    def operands(x: Tensor, y: Tensor) -> tuple[Tensor, Tensor]:
        a = layouts[0](x.to(dtype))
        return a, a if aliased else layouts[1](y.to(dtype))

    def loop(ops: Any, x: Tensor, y: Tensor, i: Tensor) -> Sequence[Tensor]:
        def step(n: Tensor, a: Tensor, b: Tensor) -> tuple[Tensor, ...]:
            results = steps[0](a, b).to(dtype), steps[1](b, a).to(dtype)
            results = tuple(r * 1 if r is a or r is b else r for r in results)
            return (n + 1, *(results[::-1] if swapped else results))

        start = i[0] * 0 if other else torch.tensor(0)
        return ops.while_loop(lambda n, _a, _b: n < rounds, step, (start, *operands(x, y)))

    def scan(ops: Any, x: Tensor, y: Tensor, _i: Tensor) -> Sequence[Tensor]:
        a, b = operands(x, y)
        rows = b.narrow(dim, 0, min(length, b.shape[dim]))
        first = a.select(dim, 0)

        def step(c: Tensor, row: Tensor) -> tuple[Tensor, tuple[Tensor, ...]]:
            done = steps[0](c, row).to(dtype) * 1
            more = (steps[1](row, c).to(dtype) * 1, steps[2](done, row) > 0, done * 1)
            return done, more[:outputs]

        last, stacked = ops.scan(step, first, rows, dim=dim, reverse=reverse)
        return last, *stacked

    def mapped(ops: Any, x: Tensor, y: Tensor, _i: Tensor) -> Sequence[Tensor]:
        a, b = operands(x, y)

        def step(pair: tuple[Tensor, Tensor]) -> tuple[Tensor, ...]:
            row, more = pair
            return tuple(s(row, more).to(dtype) * 1 for s in steps[:outputs])

        return ops.map(step, (a, b))

    def cond(ops: Any, x: Tensor, y: Tensor, i: Tensor) -> Sequence[Tensor]:
        a, b = operands(x, y)
        chosen = i.sum() > rounds if other else x.sum() > 0
        branches = [lambda p, q, s=s: (s(p, q).to(dtype) * 1, s(q, p).to(dtype) * 1) for s in steps[:2]]
        return ops.cond(chosen, *branches, (a, b))

    return {"while": loop, "scan": scan, "map": mapped, "cond": cond}[kind]


def outcomes(fn: Callable[..., Any], calls: Sequence[Sequence[Tensor]], *, trains: bool) -> list[Any]:
    """Return the results and gradients of each call."""
    found = []
    for given in calls:
        x, y, i = (t.clone() for t in given)
        leaves = [t.requires_grad_(trains) for t in (x, y)]
        results = fn(x, y, i)
        taken: list[list[Any]] = []
        for values in results if trains else ():
            total = sum((v.double().sum() for v in values if v.requires_grad), torch.zeros(()))
            got = (
                torch.autograd.grad(total, leaves, retain_graph=True, allow_unused=True)
                if total.requires_grad
                else (None, None)
            )
            pairs = zip(got, leaves, strict=True)
            taken.append([torch.zeros_like(leaf) if g is None else g for g, leaf in pairs])
        found.append(([[v.detach() for v in values] for values in results], taken))
    return found


def run_batch(seeds: Sequence[int], backend: str, *, trains: bool) -> list[str]:
    """Compile the programs of ``seeds`` as one function; return what differs."""
    subjects = [subject(seed) for seed in seeds]
    generator = torch.Generator().manual_seed(seeds[0])
    calls = [
        (
            torch.randn(4, 4, generator=generator) * 3,
            torch.randn(4, 4, generator=generator),
            torch.tensor([n, 2]),
        )
        for n in (1, 3)
    ]

    def function(ops: SimpleNamespace) -> Callable[..., Any]:
        return lambda x, y, i: [list(s(ops, x, y, i)) for s in subjects]

    # One graph: gradients of each program alone are taken with ``retain_graph``.
    compiled = fxstack.compile(function(TORCHS), backend=backend)
    try:
        found = outcomes(compiled, calls, trains=trains)
    except Exception as error:
        return [f"{type(error).__name__}: {str(error)[:300]}"]
    expected = outcomes(function(PLAIN), calls, trains=trains)
    lines = []
    for number, (mine, theirs) in enumerate(zip(found, expected, strict=True)):
        for part, (ours, wanted) in enumerate(zip(mine, theirs, strict=True)):
            for seed, values, others in zip(seeds, ours, wanted, strict=bool(ours)):
                texts = [leaf_difference(a, b) for a, b in zip(values, others, strict=True)]
                if any(texts):
                    lines.append(
                        f"seed {seed}, call {number}, {('results', 'gradients')[part]}: {texts}"[:600]
                    )
    return lines


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--backend", default="inductor")
    parser.add_argument("--start", type=int, default=0)
    parser.add_argument("--programs", type=int, default=1000)
    parser.add_argument("--batch", type=int, default=20)
    parser.add_argument("--seconds", type=float, default=float("inf"))
    parser.add_argument("--dry", action="store_true", help="three programs, without the C compiler")
    options = parser.parse_args()
    if options.dry:
        options.programs, options.batch, options.backend = 3, 3, "aot_eager"
    logging.disable(logging.CRITICAL)
    warnings.simplefilter("ignore")
    torch.set_num_threads(1)
    started, programs, differ = time.time(), 0, 0
    for first in range(options.start, options.start + options.programs, options.batch):
        if time.time() - started > options.seconds:
            break
        seeds = range(first, min(first + options.batch, options.start + options.programs))
        lines = run_batch(seeds, options.backend, trains=bool(first // options.batch % 2))
        fxstack.reset()
        programs += len(seeds)
        differ += bool(lines)
        for line in lines:
            print(f"from {first}: {line}", flush=True)
    print(f"{programs} programs, {differ} batches differ, {time.time() - started:.0f} s")
    return int(differ > 0)


if __name__ == "__main__":
    sys.exit(main())
