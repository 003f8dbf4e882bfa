"""Lets the tests of this folder import ``counting`` of ``tests/api``."""

import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[1] / "api"))
