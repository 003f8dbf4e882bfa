"""Changes through chains of views of all kinds, compiled and eager.

    python integration/tests/sweeps/views.py [--backend aot_eager|inductor] [--depth 1|--pairs] [--count N] [--part K/N] [--dry]

Depth 1 is all of them; deeper chains are drawn. Pairs are changes of one view that read another view. Prints each
difference, and totals; exits with 1 if there is one.
"""

from __future__ import annotations

import argparse
import sys
from collections import Counter
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[1]))

from view_family import cases, differences, pairs

import fxstack


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--backend", default="aot_eager")
    parser.add_argument("--depth", type=int, default=1)
    parser.add_argument("--pairs", action="store_true")
    parser.add_argument("--count", type=int, default=None)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--part", default="0/1", help="K/N: every N-th case from the K-th")
    parser.add_argument("--dry", action="store_true")
    options = parser.parse_args()
    count = 10 if options.dry else options.count
    if count is None and options.depth > 1 and not options.pairs:
        count = 3000
    first, step = map(int, options.part.split("/"))
    made = pairs(count, options.seed) if options.pairs else cases(options.depth, count, options.seed)
    chosen = made[first::step]
    different: Counter[str] = Counter()
    for number, case in enumerate(chosen):
        found = differences(case, options.backend)
        if found is not None:
            print(f"{case}: {found}", flush=True)
            different[case.change] += 1
        if number % 50 == 0:
            fxstack.reset()
    print(f"{len(chosen)} cases, {different.total()} differences {dict(different)}")
    return 1 if different else 0


if __name__ == "__main__":
    sys.exit(main())
