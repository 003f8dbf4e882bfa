"""Changes through chains of views, and changes that read another view: samples of the families in ``view_family``."""

import pytest
from view_family import Case, cases, differences, pairs

SAMPLE = [
    Case("transposed", ("unfold first",), "list", "clone"),
    Case("transposed", ("unfold first",), "out", "input"),
    *cases(1, 24, seed=1),
    *cases(2, 40, seed=2),
    *cases(3, 16, seed=3),
]


@pytest.mark.parametrize("case", SAMPLE, ids=str)
def test_changes_are_eagers(case):
    assert differences(case) is None


@pytest.mark.parametrize("case", cases(2, 6, seed=4), ids=str)
def test_kernels_are_eagers(case):
    assert differences(case, "inductor") is None


@pytest.mark.parametrize("case", pairs(30, seed=5), ids=str)
def test_changes_that_read_another_view_are_eagers(case):
    assert differences(case) is None
