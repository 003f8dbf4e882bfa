"""Lets the tests of this folder import their helpers, and ``same`` of ``emit``."""

import sys
from pathlib import Path

from fxstack_capture import native

HERE = Path(__file__).parent
sys.path[:0] = [str(HERE), str(HERE.parent / "emit")]

if not native.AVAILABLE:
    collect_ignore_glob = ["test_*.py"]
