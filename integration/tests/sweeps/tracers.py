"""Other tracers and modes around compiled calls, against eager.

    python integration/tests/sweeps/tracers.py [--backend aot_eager|inductor] [--dry]

Prints each difference, and totals; exits with 1 if there is one.
"""

from __future__ import annotations

import argparse
import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[1]))

from tracer_family import cases, differences


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--backend", default="aot_eager")
    parser.add_argument("--dry", action="store_true")
    options = parser.parse_args()
    chosen = cases()[::60] if options.dry else cases()
    different = 0
    for case in chosen:
        found = differences(*case, options.backend)
        if found is not None:
            different += 1
            print(f"{case}: {found}", flush=True)
    print(f"{len(chosen)} cases, {different} differences")
    return 1 if different else 0


if __name__ == "__main__":
    sys.exit(main())
