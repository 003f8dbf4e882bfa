"""torch's operator database through capture, forward, the graphs run as they are.

python packages/capture/tests/sweeps/operators.py [--samples 3] [--dtype float32] [--only add] [--verbose]
"""

from __future__ import annotations

import argparse
import itertools
import sys

import torch
from beside import Tally, captured, clones, difference, seeded
from torch.testing._internal.common_methods_invocations import op_db

UNDEFINED = {"empty", "empty_like", "empty_strided", "empty_permuted", "new_empty", "new_empty_strided"}
"""Operators whose results are whatever was in memory."""


def try_sample(op, sample, tally: Tally, name: str) -> None:
    def call(input, args, kwargs):
        return op(input, *args, **kwargs)

    expected = seeded(lambda: call(*clones((sample.input, sample.args, sample.kwargs))))
    compiled, seen = captured(call)
    found = seeded(lambda: compiled(*clones((sample.input, sample.args, sample.kwargs))))
    tally.add(name, difference(found, expected), seen)


def main() -> int:
    parser = argparse.ArgumentParser()
    parser.add_argument("--samples", type=int, default=3)
    parser.add_argument("--dtype", default="float32")
    parser.add_argument("--only")
    parser.add_argument("--verbose", action="store_true")
    options = parser.parse_args()
    dtype = getattr(torch, options.dtype)
    tally = Tally(options.verbose)
    for op in op_db:
        if op.name in UNDEFINED or (options.only and options.only not in op.name):
            continue
        if dtype not in op.supported_dtypes("cpu"):
            continue
        samples = itertools.islice(op.sample_inputs("cpu", dtype), options.samples)
        for number, sample in enumerate(samples):
            try_sample(op, sample, tally, f"{op.name}.{op.variant_test_name} {number}")
    return tally.report()


if __name__ == "__main__":
    if sys.argv[1:] == ["--dry"]:  # seconds of it, for the tests
        sys.argv[1:] = ["--samples", "1", "--only", "addmm"]
    sys.exit(main())
