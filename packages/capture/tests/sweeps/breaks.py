"""Random programs with graph breaks at random places, plain and compiled: prints the seeds that differ and a summary.

python packages/capture/tests/sweeps/breaks.py [--first 0] [--count 500] [--seconds 600]
"""

import sys
from pathlib import Path

TESTS = Path(__file__).resolve().parents[1]
sys.path[:0] = [str(TESTS / part) for part in ("driver", "api", "emit", "sweeps")]

import seeds  # noqa: E402
from breaking import compare_broken  # noqa: E402

if __name__ == "__main__":
    if sys.argv[1:] == ["--dry"]:  # seconds of it, for the tests
        sys.argv[1:] = ["--count", "2"]
    sys.exit(seeds.sweep(compare_broken, seeds.options(500, 600.0)))
