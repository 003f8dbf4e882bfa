"""Methods of custom autograd functions that break: eager's results, and a bounded number of graphs."""

import random

import function_programs
import pytest

SAMPLE = random.Random(0).sample(function_programs.FAMILY, 24)


@pytest.mark.parametrize(("use", "place"), SAMPLE)
def test_sample(use, place):
    assert function_programs.compare(use, place) is None


@pytest.mark.parametrize("use", ["solver", "save again", "held", "remove"])
@pytest.mark.parametrize("place", ["everywhere", "apply"])
def test_hardest(use, place):
    assert function_programs.compare(use, place) is None
