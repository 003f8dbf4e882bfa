"""Random programs of views, in-place operators, outputs and aliases: eager against ahead-of-time.

    python sweeps/random_programs.py [count] [first seed]

Program ``seed`` is always the same one. Prints every difference, then a summary.
"""

import logging
import sys
import traceback
import warnings
from collections import Counter
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[1]))

from seeded_programs import program_of, run_seed


def main(count=1000, first=0):
    warnings.simplefilter("ignore")
    logging.disable()
    seen, wrong = Counter(), []
    for seed in range(first, first + count):
        try:
            seen[run_seed(seed)] += 1
        except Exception as error:
            wrong.append(seed)
            text = traceback.format_exception_only(error)[-1].strip()
            print(f"seed {seed}: {text[:400]}\n  {program_of(seed)}", flush=True)
    print(f"{count} programs from seed {first}: {len(wrong)} differ {wrong[:50]}")
    for what, number in seen.most_common():
        print(f"  {number:6d} {what}")


if __name__ == "__main__":
    if sys.argv[1:] == ["--dry"]:  # seconds of it, for the tests
        sys.argv[1:] = ["5"]
    main(*map(int, sys.argv[1:]))
