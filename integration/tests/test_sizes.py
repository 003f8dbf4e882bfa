"""Operators that compute with sizes, through one graph for several: a sample of ``sweeps/sizes.py``."""

import pytest
from size_calls import CALLS, difference

FIRST = ("nearest of two factors", "arange 0 0.1", "tensor_split 3", "adaptive half")
NAMES = [*FIRST, *list(CALLS)[::80]]


@pytest.mark.parametrize("name", NAMES)
def test_one_graph_gives_what_eager_gives(name):
    assert difference(name) is None
