"""Operators whose result jumps, on computed values of half precision: prints the cases that differ and a summary.

python packages/inductor/tests/sweeps/half_precision_jumps.py [--dry]
"""

import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "helpers"))

import half_precision  # noqa: E402


def main():
    family = half_precision.FAMILY[:: 66 if sys.argv[1:] == ["--dry"] else 1]
    found = [case for case in family if half_precision.difference(*case) is not None]
    for case in found:
        print(*case)
    print(f"{len(family)} functions, {len(found)} differ")
    return 1 if found else 0


if __name__ == "__main__":
    sys.exit(main())
