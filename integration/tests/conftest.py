"""Makes the shared model list and the examples importable, and every test start from empty caches."""

import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
for folder in ("benchmarks", "examples", "tests"):
    sys.path.insert(0, str(ROOT / folder))


@pytest.fixture(autouse=True)
def fresh():
    import fxstack

    yield
    fxstack.reset()
