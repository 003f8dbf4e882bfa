"""Saved-tensor hooks that a compiled function enters itself: a sample of the family in ``hooks_inside``."""

import pytest
from hooks_inside import cases, differences


@pytest.mark.parametrize("case", cases()[::7], ids=str)
def test_gradients_are_eagers(case):
    assert differences(*case) is None
