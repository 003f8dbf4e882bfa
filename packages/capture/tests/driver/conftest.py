"""Lets the tests of this folder import its ``running`` and the comparison of ``tests/emit``."""

import sys
from pathlib import Path

HERE = Path(__file__).parent
sys.path[:0] = [str(HERE), str(HERE.parent / "emit")]
