"""Text of NumPy arrays of the trace, the whole family: prints the cases that differ and a summary.

python packages/capture/tests/sweeps/array_texts_beside.py [--dry]
"""

import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "calls"))

import array_texts  # noqa: E402


def main():
    family = array_texts.FAMILY[:: 40 if sys.argv[1:] == ["--dry"] else 1]
    found = [(case, array_texts.difference(*case)) for case in family]
    differ = [row for row in found if row[1] is not None]
    for row in differ:
        print(*row)
    print(f"{len(family)} functions, {len(differ)} differ")
    return 1 if differ else 0


if __name__ == "__main__":
    sys.exit(main())
