"""Random nests of operators with functions inside (``torch.cond``, ``scan``, ...), compiled and in plain Python.

    python integration/tests/sweeps/nests.py [--backend eager|aot_eager|inductor] [--start 0] [--programs 5000]
        [--seconds N] [--shrink] [--dry]

Prints each program that differs, with the line that runs it alone, and totals. ``refused``: torch's own operators raise
the same exception in eager; only plain Python runs the program.
"""

from __future__ import annotations

import argparse
import logging
import sys
import time
from collections import Counter
from pathlib import Path

import torch

sys.path.insert(0, str(Path(__file__).parents[1]))

from random_nests.running import Outcome, check
from random_nests.shrinking import kind_of, shrink
from random_nests.writer import Program, program

import fxstack


def outcome_of(written: Program, backend: str) -> Outcome:
    """The outcome of a program, with no compiled code left; an error of the comparison is a difference."""
    try:
        return check(written, backend)
    except Exception as error:
        return Outcome(f"the comparison raised {type(error).__name__}: {error}")
    finally:
        fxstack.reset()
        torch.compiler.reset()


def report(seed: int, outcome: Outcome, options: argparse.Namespace) -> None:
    """Print a program that differs or is refused, and how to run it alone."""
    command = f"{Path(__file__).name} --backend {options.backend} --start {seed} --programs 1 --shrink"
    print(
        f"{command}\n    {kind_of(outcome)}: {str(outcome.difference or outcome.refused)[:600]}", flush=True
    )
    if options.shrink:
        written = program(seed)
        shrink(written, str(kind_of(outcome)), lambda p: outcome_of(p, options.backend))
        print(written.source(), flush=True)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--backend", default="aot_eager")
    parser.add_argument("--start", type=int, default=0)
    parser.add_argument("--programs", type=int, default=5000)
    parser.add_argument("--seconds", type=float, default=float("inf"))
    parser.add_argument("--shrink", action="store_true", help="print a smaller program for each that differs")
    parser.add_argument("--dry", action="store_true", help="three programs")
    options = parser.parse_args()
    if options.dry:
        options.start, options.programs = 500, 3
    logging.disable(logging.CRITICAL)
    torch.set_num_threads(1)
    started, totals, breaks = time.time(), Counter(), Counter()
    for seed in range(options.start, options.start + options.programs):
        if time.time() - started > options.seconds:
            break
        outcome = outcome_of(program(seed), options.backend)
        totals["programs"] += 1
        totals["differ"] += outcome.difference is not None
        totals["refused"] += outcome.refused is not None
        totals["one graph"] += outcome.graphs == 1 and not outcome.breaks
        breaks.update({text.partition(":")[0] for text in outcome.breaks})
        if kind_of(outcome) is not None:
            report(seed, outcome, options)
    print(", ".join(f"{count} {what}" for what, count in totals.items()), f"{time.time() - started:.0f} s")
    print("breaks:", dict(breaks.most_common()))
    return int(totals["differ"] > 0)


if __name__ == "__main__":
    sys.exit(main())
