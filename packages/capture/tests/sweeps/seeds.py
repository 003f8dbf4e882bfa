"""The command line of the sweeps over random programs: run seed after seed, print those that differ and a summary.

Run as a script it does nothing; ``programs`` and ``breaks`` use it.
"""

import argparse
import time
import warnings

import fxstack_capture


def options(count, seconds, *flags):
    """``--first``, ``--count`` and ``--seconds`` with these defaults, and what else is asked for."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--first", type=int, default=0)
    parser.add_argument("--count", type=int, default=count)
    parser.add_argument("--seconds", type=float, default=seconds)
    for flag in flags:
        parser.add_argument(flag, action="store_true")
    return parser.parse_args()


def what_differs(compare, seed):
    try:
        return compare(seed)
    except Exception as error:
        return f"{type(error).__name__}: {error}"
    finally:
        fxstack_capture.reset()


def sweep(compare, given):
    """1 if any seed differs, else 0; stops after ``given.seconds``."""
    warnings.simplefilter("ignore")
    started = time.perf_counter()
    bad, done = [], 0
    for seed in range(given.first, given.first + given.count):
        text = what_differs(compare, seed)
        done += 1
        if text:
            bad.append(seed)
            print(seed, text[:300], flush=True)
        if time.perf_counter() - started > given.seconds:
            break
    print(f"{len(bad)} of {done} programs differ: {bad}; {time.perf_counter() - started:.0f} s")
    return 1 if bad else 0
