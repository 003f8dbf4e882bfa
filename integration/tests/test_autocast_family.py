"""Calls under autocast: a sample of the family in ``autocast_family``."""

import pytest
from autocast_family import cases, differences, listed
from database_calls import IN_EAGER

MAY_RUN_IN_EAGER = {"to_sparse", "index_fill", "linalg.polar", "linalg.pinv hermitian"}
"""Operators that a compiled graph does not take under autocast: a fallback of any other one is a defect."""


def check(case, backend="aot_eager"):
    found = differences(*case, backend)
    assert found is None or (found.startswith(IN_EAGER) and case[0] in MAY_RUN_IN_EAGER), found


@pytest.mark.parametrize("case", listed()[::61], ids=str)
def test_operators_with_rules_are_eagers(case):
    check(case)


@pytest.mark.parametrize("case", [*cases()[::1301], *cases()[-1::-23][:6]], ids=str)
def test_other_operators_and_modules_are_eagers(case):
    check(case)


@pytest.mark.parametrize("case", listed()[::307], ids=str)
def test_kernels_are_eagers(case):
    check(case, "inductor")
