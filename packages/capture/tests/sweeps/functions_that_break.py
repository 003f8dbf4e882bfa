"""Custom autograd functions whose methods break, plain and compiled: prints the programs that differ and a summary.

python packages/capture/tests/sweeps/functions_that_break.py [--dry]
"""

import argparse
import sys
from pathlib import Path

TESTS = Path(__file__).resolve().parents[1]
sys.path[:0] = [str(TESTS / part) for part in ("driver", "api", "emit")]

from function_programs import FAMILY, compare  # noqa: E402


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--dry", action="store_true", help="six programs alone")
    family = FAMILY[::25] if parser.parse_args().dry else FAMILY
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
