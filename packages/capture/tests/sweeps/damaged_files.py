"""Load 2,500 damaged graph files: each loads, or raises a short ``LoadError`` that names the check.

    python packages/capture/tests/sweeps/damaged_files.py [--dry] [--count 2500] [--first 0]

``--dry`` loads twenty files.
"""

import argparse
import sys
import tempfile
import time
from collections import Counter
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[3] / "interchange" / "tests"))

from damage import Damage, problem


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--dry", action="store_true")
    parser.add_argument("--count", type=int, default=2500)
    parser.add_argument("--first", type=int, default=0)
    chosen = parser.parse_args()
    count = 20 if chosen.dry else chosen.count
    damage, found = Damage(), Counter()
    with tempfile.TemporaryDirectory() as folder:
        for number in range(chosen.first, chosen.first + count):
            start = time.process_time()
            wrong = problem(damage.file(number), Path(folder) / "bad.fxg")
            if time.process_time() - start > 5:
                wrong = wrong or "more than five seconds"
            if wrong:
                print(f"file {number}: {wrong}", flush=True)
            found[bool(wrong)] += 1
    print(f"{count} files, {found[True]} problems")
    return found[True] > 0


if __name__ == "__main__":
    sys.exit(main())
