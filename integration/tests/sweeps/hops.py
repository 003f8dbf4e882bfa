"""Every sample of torch's higher-order operators, eager and compiled: what differs, graphs and graph breaks.

python integration/tests/sweeps/hops.py [OPERATOR ...]
"""

from __future__ import annotations

import logging
import os
import sys
from collections import Counter
from pathlib import Path

import torch

sys.path.insert(0, str(Path(__file__).parents[1]))

from hop_samples import OPERATORS, check, samples  # noqa: E402

import fxstack  # noqa: E402

os.environ.setdefault("FXSTACK_RAISE_FAILURES", "1")  # a defect is no fallback here

DTYPES = (torch.float32, torch.float64, torch.half, torch.int64, torch.int8, torch.bool)


def outcomes(name):
    """(dtype, dynamic, with gradients, outcome) of every sample."""
    allowed = (
        OPERATORS[name].dtypes
        if OPERATORS[name].dtypes and name != "register_hook simple"
        else {torch.float32}
    )
    for dtype in (d for d in DTYPES if d in allowed):
        for gradients in (False, True) if dtype.is_floating_point else (False,):
            for sample in samples(name, dtype, gradients=gradients):
                for dynamic in (False, True):
                    yield dtype, dynamic, gradients, check(name, sample, dynamic=dynamic)
                    fxstack.reset()
                    torch.compiler.reset()


def main(*names):
    logging.disable(logging.WARNING)
    bad = 0
    for name in names or OPERATORS:
        count, raising, graphs, breaks = 0, 0, Counter(), Counter()
        for dtype, dynamic, gradients, outcome in outcomes(name):
            count += 1
            raising += outcome.eager_raises
            graphs[outcome.graphs] += 1
            breaks.update(outcome.breaks)
            if outcome.difference:
                bad += 1
                print(f"  {name} {dtype} {dynamic=} {gradients=}: {outcome.difference[:300]}", flush=True)
        print(
            f"{name}: {count} samples ({raising} raise in eager), graphs {dict(graphs)}, breaks {dict(breaks)}",
            flush=True,
        )
    print(f"{bad} samples differ")
    return bad


if __name__ == "__main__":
    if sys.argv[1:] == ["--dry"]:  # seconds of it, for the tests
        sys.argv[1:] = ["map simple"]
    sys.exit(main(*sys.argv[1:]) > 0)
