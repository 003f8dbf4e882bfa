"""Random programs over tensors and containers, plain and compiled: prints the seeds that differ and a summary.

    python packages/capture/tests/sweeps/programs.py [--first 0] [--count 2000] [--whole] [--language] [--seconds 3600]

``--whole``: programs without anything that ends a graph. ``--language``: those that use more of the language. Stops after
``--seconds``.
"""

import sys
from functools import partial
from pathlib import Path

TESTS = Path(__file__).resolve().parents[1]
sys.path[:0] = [str(TESTS / part) for part in ("api", "emit", "sweeps")]

import seeds  # noqa: E402
from differential import compare  # noqa: E402
from language_programs import language_program  # noqa: E402
from programs import program  # noqa: E402

if __name__ == "__main__":
    if sys.argv[1:] == ["--dry"]:  # seconds of it, for the tests
        sys.argv[1:] = ["--count", "3"]
    given = seeds.options(2000, 3600.0, "--whole", "--language")
    write = language_program if given.language else program
    sys.exit(seeds.sweep(partial(compare, breaks=not given.whole, write=write), given))
