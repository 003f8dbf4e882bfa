"""Random programs with graph breaks at random places, plain and compiled: prints the seeds that differ and a summary.

python packages/capture/tests/sweeps/breaks.py [--first 0] [--count 500] [--seconds 600]
"""

import argparse
import sys
import time
import warnings
from pathlib import Path

TESTS = Path(__file__).resolve().parents[1]
sys.path[:0] = [str(TESTS / part) for part in ("driver", "api", "emit")]

from breaking import compare_broken  # noqa: E402

import fxstack_capture  # noqa: E402


def what_differs(seed):
    try:
        return compare_broken(seed)
    except Exception as error:
        return f"{type(error).__name__}: {error}"
    finally:
        fxstack_capture.reset()


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--first", type=int, default=0)
    parser.add_argument("--count", type=int, default=500)
    parser.add_argument("--seconds", type=float, default=600.0)
    options = parser.parse_args()
    warnings.simplefilter("ignore")
    started = time.perf_counter()
    bad, done = [], 0
    for seed in range(options.first, options.first + options.count):
        text = what_differs(seed)
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
