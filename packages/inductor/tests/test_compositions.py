"""A sample of the family of ``helpers/compositions.py``: functions of functions at special values."""

import dataclasses

import pytest
import torch
from compositions import INNER, differences, wrong
from inductor_checks import FAST

OUTER = {name: INNER[name] for name in ("sin", "cos", "sinh", "cosh", "exp", "log", "sqrt", "abs")}
"""Of these and the inner functions below C compilers know identities."""
FULL = dataclasses.replace(FAST, optimization=3)


@pytest.mark.parametrize("name", ["atan", "atanh", "exp", "log", "square", "over zero"])
def test_functions_of_functions_at_special_values(name):
    assert differences(name, torch.float32, FULL, OUTER, lengths=(1, 57)) == []


@pytest.mark.parametrize(
    ("got", "f", "inner", "is_wrong"),
    [
        (1.0, torch.sin, float("nan"), True),
        (float("nan"), torch.sin, float("inf"), False),
        (-0.0, torch.sin, 0.0, True),
        (0.0, torch.sin, 0.0, False),
        (0.84147, torch.sin, 1.0, False),
        (0.8416, torch.sin, 1.0, True),
        (-2.2877e7, torch.tan, 1.5707964, False),  # a few places off, where tan changes its sign
        (float("inf"), torch.exp, 88.0, True),
        (float("inf"), torch.exp, 88.72284, False),
    ],
)
def test_what_counts_as_wrong(got, f, inner, is_wrong):
    assert wrong(torch.tensor([got]), f, torch.tensor([inner])).tolist() == [is_wrong]
