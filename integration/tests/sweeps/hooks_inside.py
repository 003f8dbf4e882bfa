"""Saved-tensor hooks that a compiled function enters itself, the whole family against eager.

    python integration/tests/sweeps/hooks_inside.py [--backend aot_eager|inductor] [--dry]

Prints each difference, and totals; exits with 1 if there is one.
"""

from __future__ import annotations

import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[1]))

from family_sweep import sweep
from hooks_inside import cases, differences

if __name__ == "__main__":
    sys.exit(sweep(__doc__, cases(), differences))
