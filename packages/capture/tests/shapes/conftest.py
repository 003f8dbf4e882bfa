"""Lets the tests of this folder import its ``mixed_numbers``, and ``counting`` of ``tests/api``."""

import sys
from pathlib import Path

HERE = Path(__file__).parent
sys.path[:0] = [str(HERE), str(HERE.parent / "api")]
