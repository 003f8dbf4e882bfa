"""Derivatives of compiled functions: a sample of the family in ``derivative_family``."""

import pytest
from derivative_family import cases, differences


@pytest.mark.parametrize("case", cases()[::7], ids=str)
def test_derivatives_are_eagers(case):
    assert differences(*case) is None


@pytest.mark.parametrize("case", cases()[::71], ids=str)
def test_kernels_are_eagers(case):
    assert differences(*case, "inductor") is None
