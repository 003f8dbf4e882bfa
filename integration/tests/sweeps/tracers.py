"""Other tracers and modes around compiled calls, against eager.

    python integration/tests/sweeps/tracers.py [--backend aot_eager|inductor] [--dry]

Prints each difference, and totals; exits with 1 if there is one.
"""

from __future__ import annotations

import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[1]))

from family_sweep import sweep
from tracer_family import cases, differences

if __name__ == "__main__":
    sys.exit(sweep(__doc__, cases(), differences))
