"""Every program of ``hop_programs``: what differs from plain Python.

python integration/tests/sweeps/hop_programs.py [--dry] [--only TEXT ...]
"""

from __future__ import annotations

import argparse
import logging
import sys
from pathlib import Path

import torch

sys.path.insert(0, str(Path(__file__).parents[1]))

from hop_programs import cases, run  # noqa: E402

import fxstack  # noqa: E402


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--dry", action="store_true", help="a few cases")
    parser.add_argument("--only", nargs="*", default=[], help="cases whose name has all these words")
    parser.add_argument("--without", nargs="*", default=[], help="cases whose name has none of these")
    options = parser.parse_args()
    logging.disable(logging.WARNING)
    wanted, unwanted = set(options.only), set(options.without)
    chosen = [c for c in cases() if wanted <= set(str(c).split()) and not unwanted & set(str(c).split())]
    chosen = chosen[:: max(1, len(chosen) // 6)] if options.dry else chosen
    bad = 0
    for case in chosen:
        try:
            text = run(case)
        except Exception as error:  # of the comparison: a gradient that cannot be taken, say
            text = f"{type(error).__name__}: {error}"
        if text is not None:
            bad += 1
            print(f"  {case}: {text[:400]}", flush=True)
        fxstack.reset()
        torch.compiler.reset()
    print(f"{len(chosen)} programs, {bad} differ")
    return int(bad > 0)


if __name__ == "__main__":
    sys.exit(main())
