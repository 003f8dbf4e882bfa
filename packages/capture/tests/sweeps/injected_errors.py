"""Every rule and handler that a few programs come through raises every kind of error, once each.

python packages/capture/tests/sweeps/injected_errors.py [--dry]
"""

from __future__ import annotations

import argparse
import sys
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).parents[1] / "interpreter"))
from injecting import ERRORS, cases, problem


def main() -> int:
    parser = argparse.ArgumentParser()
    parser.add_argument("--dry", action="store_true", help="a few cases")
    options = parser.parse_args()
    wrong = count = 0
    with pytest.MonkeyPatch.context() as patch:
        places = cases(patch)[:: 25 if options.dry else 1]
        for program, place, _ in places:
            for error in ERRORS:
                count += 1
                text = problem(program, place, error, patch)
                if text is not None:
                    wrong += 1
                    print(program.__name__, place, error.__name__, text)
    print(f"{count} errors put in, {wrong} differences")
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
