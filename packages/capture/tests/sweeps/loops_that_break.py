"""Loops that break the graph, beside eager and torch.compile: prints the programs that differ and a summary.

python packages/capture/tests/sweeps/loops_that_break.py [--dry]
"""

import argparse
import itertools
import sys
from pathlib import Path

TESTS = Path(__file__).resolve().parents[1]
sys.path[:0] = [str(TESTS / part) for part in ("driver", "api", "emit")]

from loop_programs import BODIES, BREAKS, compare  # noqa: E402


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--dry", action="store_true", help="six programs alone")
    family = list(itertools.product(BODIES, BREAKS))
    family = family[::40] if parser.parse_args().dry else family
    differences = 0
    for case in family:
        text = compare(*case)
        if text is not None:
            differences += 1
            print(*case, text)
    print(f"{len(family)} programs, {differences} differences")
    return 1 if differences else 0


if __name__ == "__main__":
    sys.exit(main())
