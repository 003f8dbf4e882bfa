"""Makes the shared model list and the examples importable, every test start from empty caches, and Triton interpret."""

import os
import sys
from pathlib import Path

import pytest

os.environ.setdefault("TRITON_INTERPRET", "1")  # there is no GPU where tests run
os.environ.setdefault("FXSTACK_RAISE_FAILURES", "1")  # a defect is no fallback here
ROOT = Path(__file__).parents[1]
for folder in ("benchmarks", "examples", "tests"):
    sys.path.insert(0, str(ROOT / folder))


@pytest.fixture(autouse=True)
def fresh():
    import fxstack

    yield
    fxstack.reset()
