"""Random programs over tensors and containers, plain and compiled: prints the seeds that differ and a summary.

    python packages/capture/tests/sweeps/programs.py [--first 0] [--count 2000] [--whole] [--seconds 600]

``--whole``: programs without anything that ends a graph. Stops after ``--seconds``.
"""

import argparse
import sys
import time
import warnings
from pathlib import Path

TESTS = Path(__file__).resolve().parents[1]
sys.path[:0] = [str(TESTS / "api"), str(TESTS / "emit")]

from differential import compare  # noqa: E402

import fxstack_capture  # noqa: E402


def what_differs(seed, breaks):
    try:
        return compare(seed, breaks=breaks)
    except Exception as error:
        return f"{type(error).__name__}: {error}"
    finally:
        fxstack_capture.reset()


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--first", type=int, default=0)
    parser.add_argument("--count", type=int, default=2000)
    parser.add_argument("--whole", action="store_true")
    parser.add_argument("--seconds", type=float, default=3600.0)
    options = parser.parse_args()
    warnings.simplefilter("ignore")
    started = time.perf_counter()
    bad, done = [], 0
    for seed in range(options.first, options.first + options.count):
        text = what_differs(seed, breaks=not options.whole)
        done += 1
        if text:
            bad.append(seed)
            print(seed, text[:300], flush=True)
        if time.perf_counter() - started > options.seconds:
            break
    print(f"{len(bad)} of {done} programs differ: {bad}; {time.perf_counter() - started:.0f} s")
    return 1 if bad else 0


if __name__ == "__main__":
    sys.exit(main())
