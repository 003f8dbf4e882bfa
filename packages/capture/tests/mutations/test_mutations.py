"""Whatever is changed between two calls, the compiled program does what the plain one does."""

import compare
import pytest

import fxstack_capture

# Seeds that showed a missing guard once: empty cells (292, 446), attributes and classes of enum members (567, 2122), -0.0 (885).
KNOWN = [292, 446, 567, 885, 2122]


@pytest.fixture(autouse=True)
def _forget():
    yield
    fxstack_capture.reset()


@pytest.mark.parametrize("seed", range(200_000, 200_010))
def test_one_change_between_calls_or_in_a_library(seed):
    _, found = compare.run(seed, changes=12, libraries=0.5)
    assert found is None, found


@pytest.mark.parametrize("seed", [*KNOWN, *range(100_000, 100_025)])
def test_one_change_between_calls(seed):
    _, found = compare.run(seed, changes=12)
    assert found is None, found
