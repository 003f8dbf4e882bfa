"""Expressions of numbers from tensors, the whole family.

    python integration/tests/sweeps/item_expressions.py [--backend aot_eager|eager|inductor] [--dry]

Prints each difference, and totals; exits with 1 if there is one.
"""

import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[1]))

from family_sweep import sweep
from item_expressions import CASES, differences

if __name__ == "__main__":
    sys.exit(sweep(__doc__, CASES, differences))
