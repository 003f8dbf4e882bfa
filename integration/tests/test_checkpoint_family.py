"""Checkpoints of every kind, in every place: a sample of the family in ``checkpoint_family``."""

import pytest
from checkpoint_family import cases, differences


@pytest.mark.parametrize("case", cases()[5::83], ids=str)
def test_gradients_are_eagers(case):
    assert differences(*case) is None
