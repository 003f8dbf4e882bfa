"""Random programs with breaks at random places behave as in plain Python. ``sweeps/breaks.py`` runs more of them."""

import sys
import warnings
from pathlib import Path

import pytest

sys.path.append(str(Path(__file__).resolve().parents[1] / "api"))

from breaking import compare_broken  # noqa: E402


@pytest.mark.parametrize("seed", [0, 3, 15, 25])
def test_random_breaks(seed):
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        assert compare_broken(seed) is None
