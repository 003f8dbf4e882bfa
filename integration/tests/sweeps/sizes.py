"""Operators that compute with sizes, through one graph with symbolic sizes: interpolation, pooling, windows, grids, steps, parts.

    python integration/tests/sweeps/sizes.py [--only PATTERN] [--every 1] [--dry]

Values, strides and exceptions are compared with eager for several sizes. Prints each difference, and totals.
"""

from __future__ import annotations

import argparse
import logging
import re
import sys
import time
from pathlib import Path

import torch

sys.path.insert(0, str(Path(__file__).parents[1]))

from size_calls import CALLS, difference  # noqa: E402 - found by the line above


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--only", default="")
    parser.add_argument("--every", type=int, default=1)
    parser.add_argument("--dry", action="store_true", help="a few calls")
    args = parser.parse_args()
    logging.disable(logging.WARNING)
    torch.set_num_threads(1)
    chosen = [name for name in CALLS if re.search(args.only, name)][:: 60 if args.dry else args.every]
    bad, start = 0, time.time()
    for name in chosen:
        found = difference(name)
        if found is not None:
            bad += 1
            print(f"{name}: {found}", flush=True)
    print(f"{len(chosen)} calls, {bad} differences, {time.time() - start:.0f} s")
    return bad > 0


if __name__ == "__main__":
    sys.exit(main())
