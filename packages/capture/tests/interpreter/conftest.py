"""Makes ``plain`` (siblings that do the native thing) importable."""

import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent))
