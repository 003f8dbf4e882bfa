"""A sample of the family of ``helpers/extents.py``: operators at extents of 0 to 3. All of it: ``sweeps/extents.py``."""

import pytest
from extents import PROGRAMS, cases, differences
from inductor_checks import FAST

SAMPLE = [*PROGRAMS][::5]
KINDS = ("float32", "int64", "bool", "bfloat16", "uint8", "float16")


@pytest.mark.parametrize(
    ("name", "dtype"), [(n, KINDS[k % len(KINDS)]) for k, n in enumerate(SAMPLE)]
)
def test_operators_at_small_extents(name, dtype):
    made = cases(name, dtype)
    few = made[:: max(1, len(made) // 4)]
    assert differences(name, dtype, FAST, few) == []


def test_the_family_has_cases():
    assert len(cases("set", "float32")) > 100
