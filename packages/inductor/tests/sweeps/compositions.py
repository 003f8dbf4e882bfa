"""Every function of every function at special values, with each compiler; see ``helpers/compositions.py``.

    python packages/inductor/tests/sweeps/compositions.py [--compilers gcc,clang] [--dtypes float32,float64]
        [--only PATTERN] [--dry]

Prints what differs, and totals.
"""

import argparse
import re
import shutil
import sys
from pathlib import Path

import torch

sys.path.insert(0, str(Path(__file__).parents[1] / "helpers"))
from compositions import INNER, differences

import fxstack_inductor as fi


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--compilers", default="gcc,clang")
    parser.add_argument("--dtypes", default="float32,float64")
    parser.add_argument("--only", default="", help="a pattern for the inner function")
    parser.add_argument("--dry", action="store_true", help="one inner function")
    args = parser.parse_args()
    if args.dry:
        args.compilers, args.dtypes = "gcc", "float32"
    names = [name for name in INNER if re.search("^atan$" if args.dry else args.only, name)]
    outer = dict([*INNER.items()][:4]) if args.dry else INNER
    pairs = bad = 0
    for compiler in filter(shutil.which, args.compilers.split(",")):
        options = fi.InductorOptions(use_cache=False, compiler=compiler)
        for dtype in args.dtypes.split(","):
            for name in names:
                found = differences(name, getattr(torch, dtype), options, outer)
                pairs += len(outer)
                bad += len(found)
                for text in found:
                    print(f"{compiler}: {text}", flush=True)
    print(f"{pairs} pairs, {bad} differences")
    return 1 if bad else 0


if __name__ == "__main__":
    sys.exit(main())
