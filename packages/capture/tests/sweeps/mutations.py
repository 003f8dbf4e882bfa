"""The mutation fuzzer at full length: random programs, one change between calls, eager as the oracle.

    python packages/capture/tests/sweeps/mutations.py [FIRST LAST [CHANGES [SECONDS [PERCENT]]]]

Prints each difference with the program and the changes that lead to it, a line of progress every hundred programs, then a
summary. The default is 2,000 programs with up to 30 changes each. A program that takes longer than SECONDS (60) is
left and counted: a change can make a loop endless, in plain Python too. PERCENT (0) of the changes replace what torch,
NumPy or the standard library defines, for the length of a call.
"""

import signal
import sys
import time
from pathlib import Path

TESTS = Path(__file__).parents[1]
sys.path[:0] = [str(TESTS / "mutations"), str(TESTS / "emit")]

import compare  # noqa: E402 - found through the path above

import fxstack_capture  # noqa: E402
from fxstack_capture.guards.tensor_build import TENSOR_CHECKS  # noqa: E402


class TooLongError(BaseException):
    """Not an ``Exception``: neither the program nor the compiler may take it for one of theirs."""


def _too_long(_signal, _frame):
    raise TooLongError


def one(seed, changes, seconds, libraries):
    """(changes made, what differed or None); (0, None) and a line of text for a program that does not end."""
    signal.alarm(seconds)
    try:
        return compare.run(seed, changes, libraries=libraries)
    except TooLongError:
        print(f"seed {seed}: left after {seconds} s", flush=True)
        return 0, None
    finally:
        signal.alarm(0)
        fxstack_capture.reset()


def main(first=0, last=2_000, changes=30, seconds=60, percent=0):
    TENSOR_CHECKS.wait()
    signal.signal(signal.SIGALRM, _too_long)
    started, made, bad = time.perf_counter(), 0, 0
    for seed in range(first, last):
        count, found = one(seed, changes, seconds, percent / 100)
        made += count
        if found is not None:
            bad += 1
            print(found, end="\n\n", flush=True)
        if (seed + 1 - first) % 100 == 0 or seed + 1 == last:
            spent = time.perf_counter() - started
            print(f"{seed + 1 - first} programs, {made} changes, {bad} wrong, {spent:.0f} s", flush=True)
    return bad


if __name__ == "__main__":
    if sys.argv[1:] == ["--dry"]:  # seconds of it, for the tests
        sys.argv[1:] = ["0", "2", "3"]
    sys.exit(main(*map(int, sys.argv[1:])) > 0)
