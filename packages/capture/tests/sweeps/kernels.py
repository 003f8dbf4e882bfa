"""Fake kernels beside real ones: every operator of torch's databases, in all dtypes, memory layouts and pairs of dtypes.

    python packages/capture/tests/sweeps/kernels.py [--only softmax] [--dtypes float32 int64] [--symbols] [--dry]

Prints an example of each difference, and exits 1 if there is one. Strides of tensors without elements are not counted.
"""

from __future__ import annotations

import argparse
import sys
from pathlib import Path

import torch

sys.path.insert(0, str(Path(__file__).parents[1] / "torch_facts"))
import kernels_beside as kb

UNCOUNTED = "empty strides"
DRY = ("add", "sum", "softmax", "index_select", "expand", "cat")
"""Operators of the dry mode."""


def arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--only", default="", help="operators whose name has this in it")
    parser.add_argument("--dtypes", nargs="*", help="by name; all if none is given")
    parser.add_argument("--samples", type=int, default=6, help="of each operator and dtype")
    parser.add_argument("--symbols", action="store_true", help="with symbolic sizes")
    parser.add_argument("--dry", action="store_true", help="a few operators alone")
    return parser.parse_args()


def main() -> int:
    given = arguments()
    ops = [op for op in kb.op_db if given.only in kb.name_of(op)]
    dtypes = [getattr(torch, name) for name in given.dtypes] if given.dtypes else kb.DTYPES
    samples = given.samples
    if given.dry:
        ops = [op for op in ops if kb.name_of(op) in DRY]
        dtypes, samples = dtypes[:1], 1
    families = {
        "operators": kb.of_operators(ops, dtypes, samples=samples),
        "pairs of dtypes": kb.of_pairs(ops, samples=samples),
        "out=": kb.of_outs(ops, samples=samples),
    }
    differences = 0
    for family, programs in families.items():
        beside = kb.run(programs, symbols=given.symbols)
        found = {k: v for k, v in beside.found.items() if k[1] != UNCOUNTED}
        for (operator, kind), example in sorted(found.items()):
            print(f"{operator} {kind}: {example}")
        counts = ", ".join(f"{count} {what}" for what, count in beside.counts.items())
        print(f"{family}: {counts}; {len(found)} operators differ", flush=True)
        differences += len(found)
    return 1 if differences else 0


if __name__ == "__main__":
    sys.exit(main())
