"""Symbolic integers beside bools and floats, the whole family: prints the cases that differ and a summary.

python packages/capture/tests/sweeps/numbers_beside.py [--dry]
"""

import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "shapes"))

import mixed_numbers  # noqa: E402

import fxstack_capture  # noqa: E402


def main():
    step = 60 if sys.argv[1:] == ["--dry"] else 1
    cases = [
        *((mixed_numbers.with_bool, case) for case in mixed_numbers.WITH_BOOLS[::step]),
        *((mixed_numbers.with_float, case) for case in mixed_numbers.WITH_FLOATS[::step]),
    ]
    count = 0
    for compare, case in cases:
        found = compare(*case)
        fxstack_capture.reset()
        count += bool(found)
        if found:
            print(*case, found[:2], flush=True)
    print(f"{len(cases)} functions, {count} differ")
    return 1 if count else 0


if __name__ == "__main__":
    sys.exit(main())
