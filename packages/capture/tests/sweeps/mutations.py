"""The mutation fuzzer at full length: random programs, one change between calls, eager as the oracle.

    python packages/capture/tests/sweeps/mutations.py [FIRST LAST [CHANGES]]

Prints each difference with the program and the changes that lead to it, then a summary. The default is
2,000 programs with up to 30 changes each.
"""

import sys
import time
from pathlib import Path

TESTS = Path(__file__).parents[1]
sys.path[:0] = [str(TESTS / "mutations"), str(TESTS / "emit")]

import compare  # noqa: E402 - found through the path above

import fxstack_capture  # noqa: E402
from fxstack_capture.guards.tensor_build import TENSOR_CHECKS  # noqa: E402


def main(first=0, last=2_000, changes=30):
    TENSOR_CHECKS.wait()
    started, made, bad = time.perf_counter(), 0, 0
    for seed in range(first, last):
        count, found = compare.run(seed, changes)
        made += count
        if found is not None:
            bad += 1
            print(found, end="\n\n", flush=True)
        fxstack_capture.reset()
    seconds = time.perf_counter() - started
    print(f"{last - first} programs, {made} changes, {bad} wrong, {seconds:.0f} s")
    return bad


if __name__ == "__main__":
    sys.exit(main(*map(int, sys.argv[1:])) > 0)
