"""Chains of every kind of ``tests/chains.py`` beside eager: values, strides and gradients, for some lengths.

    python integration/tests/sweeps/chains.py [--only PATTERN] [--lengths 1,2,5,14] [--dry]

Each is compiled for inference, for training, and with symbolic sizes. Prints each difference, and totals.
"""

import argparse
import os
import re
import sys
import time
import warnings
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[1]))

from chains import CHAINS, difference  # noqa: E402 - found through the path above

os.environ.setdefault("FXSTACK_RAISE_FAILURES", "1")  # a defect is no fallback here
MODES = ({}, {"trains": True}, {"dynamic": True}, {"trains": True, "dynamic": True})


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--only", default="")
    parser.add_argument("--lengths", default="1,2,5,14")
    parser.add_argument("--seconds", type=float, default=3600)
    parser.add_argument("--dry", action="store_true")
    args = parser.parse_args()
    warnings.filterwarnings("ignore")
    names = [name for name in CHAINS if re.search(args.only, name)]
    lengths = [int(n) for n in args.lengths.split(",")]
    if args.dry:
        names, lengths = names[:2], [2]
    start, count, found = time.time(), 0, 0
    for n in lengths:
        for name in names:
            for mode in MODES:
                if time.time() - start > args.seconds:
                    continue
                count += 1
                text = difference(name, n, **mode)
                if text:
                    found += 1
                    print(f"{name} of {n} {mode}: {text}", flush=True)
    print(f"{count} cases: {found} differences, {time.time() - start:.0f} s")
    return 1 if found else 0


if __name__ == "__main__":
    sys.exit(main())
