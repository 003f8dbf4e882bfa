"""Calls of torch's operator database with one argument replaced: what eager refuses, compiled code refuses in the same words.

    python integration/tests/sweeps/arguments.py [--ops PATTERN] [--samples 1] [--results] [--seconds 3000] [--dry]

Scalars become negative, zero, NaN, infinite or of another type, names nonsense, lists of sizes longer and shorter, tensors get
other dtypes, sizes and elements. ``--results`` also compares what the calls return that eager accepts. Each operator is
tried in a process of its own, since some kernels do not look at their arguments. Prints each difference, and totals.
"""

from __future__ import annotations

import argparse
import logging
import multiprocessing
import re
import sys
import time
from pathlib import Path

import torch
from torch.testing._internal.common_methods_invocations import op_db

sys.path.insert(0, str(Path(__file__).parents[1]))

from perturbed_calls import RANDOM, difference, perturbed  # noqa: E402 - found by the line above

NOT_ASKED = frozenset({"max_pool2d_with_indices_backward"})
"""Kernels of gradients that believe what their callers say: nobody asks them what they refuse (torch_facts/checks.py)."""
FEW = "^(nn.functional.(celu|smooth_l1_loss|binary_cross_entropy)|softmax)$"


def tried(op, args, results):
    logging.disable(logging.WARNING)
    torch.set_num_threads(1)
    for call in perturbed(op, args.samples):
        results.send((call.what, difference(call, results=args.results)))
    results.send(None)


def isolated(op, args):
    """``(what, difference)`` of each call; None at the end if the process did not get there."""
    receiver, sender = multiprocessing.Pipe(False)
    process = multiprocessing.get_context("fork").Process(target=tried, args=(op, args, sender))
    process.start()
    sender.close()
    try:
        while receiver.poll(60):
            found = receiver.recv()
            if found is None:
                return
            yield found
    except EOFError:
        pass
    finally:
        process.kill()
        process.join()


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--ops", default="")
    parser.add_argument("--samples", type=int, default=1)
    parser.add_argument("--results", action="store_true")
    parser.add_argument("--skip", type=int, default=0)
    parser.add_argument("--seconds", type=float, default=3000)
    parser.add_argument("--dry", action="store_true", help="a few operators")
    args = parser.parse_args()
    pattern = FEW if args.dry else args.ops
    count, bad, start = 0, 0, time.time()
    for position, op in enumerate(op_db[args.skip :], args.skip):
        if time.time() - start > args.seconds:
            print(f"stopped before operator {position} of {len(op_db)}")
            break
        if not re.search(pattern, op.name) or any(word in op.name for word in RANDOM):
            continue
        if op.name in NOT_ASKED:
            continue
        for what, found in isolated(op, args):
            count += 1
            if found is not None:
                bad += 1
                print(f"{op.name} {op.variant_test_name} {what}: {found}", flush=True)
    print(f"{count} calls, {bad} differences, {time.time() - start:.0f} s")
    return bad > 0


if __name__ == "__main__":
    sys.exit(main())
