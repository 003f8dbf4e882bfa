"""Programs that call operators with functions inside and no compiler: outcome, graph and values with and without FXSTACK=1.

    python integration/tests/sweeps/uncompiled_operators.py [--only PATTERN] [--every N] [--dry]

Both processes run every program of ``tests/uncompiled_operators.py``. Prints each difference, and totals.
"""

from __future__ import annotations

import argparse
import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[1]))

from uncompiled_outcomes import differences


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--only", default="", help="pattern of the name")
    parser.add_argument("--every", type=int, default=1)
    parser.add_argument("--dry", action="store_true", help="four programs")
    options = parser.parse_args()
    count, found = differences(options.only, 230 if options.dry else options.every)
    for text in found:
        print(text)
    print(f"{count} programs, {len(found)} differ")
    return int(bool(found))


if __name__ == "__main__":
    sys.exit(main())
