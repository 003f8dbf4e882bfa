"""Every operator of ``helpers/extents.py`` at extents of 0 to 3 of each dimension, beside eager, with gcc and clang.

    python packages/inductor/tests/sweeps/extents.py [--only PATTERN] [--dtypes float32,bool] [--compilers gcc] [--step 1] [--dry]

All shapes of an operator and a dtype are one graph. Prints each difference, and totals.
"""

import argparse
import re
import shutil
import sys
import time
import warnings
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[1] / "helpers"))

from extents import DTYPES, PROGRAMS, cases, differences  # noqa: E402 - found through the path above

import fxstack_inductor as fi  # noqa: E402


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--only", default="")
    parser.add_argument("--dtypes", default=",".join(DTYPES))
    parser.add_argument("--compilers", default="gcc,clang")
    parser.add_argument("--step", type=int, default=1, help="take every so manieth case")
    parser.add_argument("--seconds", type=float, default=3600)
    parser.add_argument("--dry", action="store_true", help="three operators in one dtype")
    args = parser.parse_args()
    warnings.filterwarnings("ignore")
    names = [name for name in PROGRAMS if re.search(args.only, name)]
    dtypes = args.dtypes.split(",")
    if args.dry:
        names, dtypes = ["set", "cumsum 0", "cat"], ["float32"]
        args.compilers, args.step = "gcc", 20
    start, count, graphs, found, left = time.time(), 0, 0, 0, 0
    for compiler in filter(shutil.which, args.compilers.split(",")):
        options = fi.InductorOptions(optimization=0, use_cache=False, compiler=compiler, raise_failures=True)
        for name in names:
            for dtype in dtypes:
                if time.time() - start > args.seconds:
                    left += 1
                    continue
                made = cases(name, dtype)[:: args.step]
                count, graphs = count + len(made), graphs + bool(made)
                problems = differences(name, dtype, options, made)
                found += len(problems)
                for problem in problems[:3]:
                    print(f"{compiler}: {problem}", flush=True)
    seconds = time.time() - start
    print(f"{count} cases in {graphs} graphs: {found} differences, {left} graphs left out, {seconds:.0f} s")
    return 1 if found else 0


if __name__ == "__main__":
    sys.exit(main())
