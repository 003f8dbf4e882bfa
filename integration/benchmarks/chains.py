"""How compile time grows with the length of a chain: every kind of ``tests/chains.py``, forward and training.

    python chains.py [--only PATTERN] [--lengths 100,300,1000] [--modes forward,train,dynamic] [--limit 60] [--dry]

Each stage and each count (nodes, values in kernels, characters of C) of the last two lengths gives an exponent; those above
1.5 are marked, as are chains that fail or take longer than ``--limit`` seconds. Machine code is not made. Exits 1 on a mark.
"""

from __future__ import annotations

import argparse
import math
import os
import re
import signal
import sys
import warnings
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[1] / "tests"))
os.environ.setdefault("FXSTACK_RAISE_FAILURES", "1")

from chains import CHAINS, work

MOST = 1.5
SHORTEST = 0.5
"""Seconds below which a stage's time says nothing."""
MODES = {
    "forward": {},
    "train": {"trains": True},
    "dynamic": {"dynamic": True},
    "dynamic train": {"trains": True, "dynamic": True},
}


class TooLongError(Exception):
    """A chain took longer than the limit."""


def stop(*_):
    raise TooLongError


def measured(name, n, mode, limit):
    """The work of one chain, or words about why there is none."""
    signal.alarm(limit)
    try:
        return work(name, n, **MODES[mode])
    except Exception as error:
        return f"{type(error).__name__}: {str(error)[:200]}"
    finally:
        signal.alarm(0)


def exponents(before, after, ratio):
    """By stage or count, for those that tell."""
    pairs = {k: (v, after.counts()[k]) for k, v in before.counts().items()}
    pairs |= {k: (v, after.seconds[k]) for k, v in before.seconds.items() if after.seconds[k] > SHORTEST}
    return {k: math.log(b / a) / math.log(ratio) for k, (a, b) in pairs.items() if a and b}


def row(name, mode, lengths, limit):
    """Print one chain; whether it grows as it should."""
    done = []
    for n in lengths:
        found = measured(name, n, mode, limit)
        if isinstance(found, str):
            print(f"{mode:14}{name:24}{n}: {found}  <<<", flush=True)
            return False
        done.append(found)
    *_, before, after = done
    steep = {k: v for k, v in exponents(before, after, lengths[-1] / lengths[-2]).items() if v > MOST}
    seconds = " ".join(f"{stage} {value:.2f}" for stage, value in after.seconds.items())
    counts = f"{after.nodes} nodes, {after.kernels} kernels, {after.values} values, {after.text} characters"
    mark = "".join(f"  <<< {k}^{v:.2f}" for k, v in steep.items())
    print(f"{mode:14}{name:24}{counts}; {seconds}{mark}", flush=True)
    return not steep


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--only", default="")
    parser.add_argument("--lengths", default="100,300")
    parser.add_argument("--modes", default="forward,train,dynamic")
    parser.add_argument("--limit", type=int, default=60)
    parser.add_argument("--dry", action="store_true")
    args = parser.parse_args()
    warnings.filterwarnings("ignore")
    signal.signal(signal.SIGALRM, stop)
    names = [name for name in CHAINS if re.search(args.only, name)]
    lengths, modes = [int(n) for n in args.lengths.split(",")], args.modes.split(",")
    if args.dry:
        names, lengths, modes = names[:2], [5, 15], ["forward"]
    marked = sum(not row(name, mode, lengths, args.limit) for mode in modes for name in names)
    print(f"{len(names) * len(modes)} chains of {lengths[-1]}: {marked} marked")
    return 1 if marked else 0


if __name__ == "__main__":
    sys.exit(main())
