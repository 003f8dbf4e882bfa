"""Lets the tests of this folder import their helpers, and ``same`` and ``replacing`` of ``emit``."""

import sys
from pathlib import Path

import pytest

import fxstack_capture

HERE = Path(__file__).parent
sys.path[:0] = [str(HERE), str(HERE.parent / "emit")]


@pytest.fixture(autouse=True)
def _forget():
    yield
    fxstack_capture.reset()
