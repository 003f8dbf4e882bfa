"""Checkpoints of every kind, in every place, around models of every kind: the whole family against eager.

    python integration/tests/sweeps/checkpoints.py [--backend aot_eager|inductor] [--dry]

Prints each difference, and totals; exits with 1 if there is one.
"""

from __future__ import annotations

import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[1]))

from checkpoint_family import cases, differences
from family_sweep import sweep

if __name__ == "__main__":
    sys.exit(sweep(__doc__, cases(), differences))
