"""Lets the tests of this folder import its ``running``, the comparison of ``tests/emit`` and ``counting`` of ``tests/api``."""

import sys
from pathlib import Path

HERE = Path(__file__).parent
sys.path[:0] = [str(HERE), str(HERE.parent / "emit"), str(HERE.parent / "api")]
