"""Calls that eager torch refuses (``error_inputs`` of torch's operator database): type and message, compiled and eager.

    python integration/tests/sweeps/errors.py [--ops PATTERN] [--dynamic] [--grad] [--skip 0] [--seconds 3000]

Prints each call whose exception differs from eager's (or that only one side refuses), and totals.
"""

from __future__ import annotations

import argparse
import copy
import logging
import os
import re
import sys
import time
import warnings

import torch
from torch.testing._internal.common_methods_invocations import op_db
from torch.utils import _pytree as pytree

import fxstack

os.environ.setdefault("FXSTACK_RAISE_FAILURES", "1")  # a defect is no fallback here

warnings.filterwarnings("ignore")


def outcome(run, sample):
    """``(type, message)`` of what ``run`` raises, or the word for no exception."""
    torch.manual_seed(0)
    try:
        run(*copy.deepcopy((sample.input, sample.args, sample.kwargs)))
    except Exception as error:
        return type(error), str(error)
    return "no exception"


def check(op, sample, arguments):
    """None, or how the exceptions differ."""

    def run(x, args, kwargs):
        return op.op(x, *args, **kwargs)

    wanted = outcome(run, sample)
    fxstack.reset()
    compiled = fxstack.compile(
        run, dynamic=arguments.dynamic, options={"optimization": 1, "use_cache": False}
    )
    got = outcome(compiled, sample)
    return None if got == wanted else (wanted, got)


def refused(op, *, grad):
    """The calls of ``op`` that the database says are refused."""
    try:
        found = [entry.sample_input for entry in op.error_inputs("cpu")]
    except Exception:
        return
    for sample in found:
        if grad:
            for leaf in pytree.tree_leaves((sample.input, sample.args, sample.kwargs)):
                if isinstance(leaf, torch.Tensor) and leaf.is_floating_point() and leaf.is_leaf:
                    leaf.requires_grad_()
        yield sample


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--ops", default="")
    parser.add_argument("--dynamic", action="store_true", default=None)
    parser.add_argument("--grad", action="store_true")
    parser.add_argument("--verbose", action="store_true")
    parser.add_argument("--skip", type=int, default=0)
    parser.add_argument("--seconds", type=float, default=3000)
    arguments = parser.parse_args()
    logging.disable(logging.WARNING)
    count, bad, start = 0, 0, time.time()
    for position, op in enumerate(op_db[arguments.skip :], arguments.skip):
        if time.time() - start > arguments.seconds:
            print(f"stopped before operator {position} of {len(op_db)}")
            break
        if op.error_inputs_func is None or not re.search(arguments.ops, op.name):
            continue
        for sample in refused(op, grad=arguments.grad):
            count += 1
            if arguments.verbose:
                print(op.name, count, flush=True)
            found = check(op, sample, arguments)
            if found is not None:
                bad += 1
                print(f"{op.name}: {str(found[1])[:300]}\n    eager: {str(found[0])[:300]}", flush=True)
    print(f"{count} calls, {bad} differ, {time.time() - start:.0f} s")
    return bad > 0


if __name__ == "__main__":
    if sys.argv[1:] == ["--dry"]:  # seconds of it, for the tests
        sys.argv[1:] = ["--ops", "softmax"]
    sys.exit(main())
