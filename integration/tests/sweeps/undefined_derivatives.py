"""Second derivatives inside of compiled functions, of every operator behind every kind of view, against eager.

    python integration/tests/sweeps/undefined_derivatives.py [--backend aot_eager|inductor] [--dry]

Each case runs in a process of its own. Prints each difference, and totals; exits with 1 if there is one.
"""

from __future__ import annotations

import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[1]))

from family_sweep import sweep
from zero_derivatives import cases, crashed

if __name__ == "__main__":
    sys.exit(sweep(__doc__, cases(), crashed))
