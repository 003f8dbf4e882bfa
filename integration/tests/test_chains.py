"""Chains of operators of one kind: eager's values and gradients, and code that grows with the number of operators."""

import pytest
from chains import difference, work

COMPARED = ["row by row", "set cubes", "set slices from", "set shifted", "roll"]
COUNTED = [
    *("diamond", "where", "convert", "roll", "reshape of transpose", "gather"),
    "row by row",
    *("set cubes", "set rows", "set strided", "scatter"),
]


@pytest.mark.parametrize("name", COMPARED)
def test_values_and_gradients_are_eagers(name):
    assert difference(name, 5, trains=True) == ""


@pytest.mark.parametrize("name", ["set blocks"])
def test_with_symbolic_sizes(name):
    assert difference(name, 5, trains=True, dynamic=True) == ""


@pytest.mark.parametrize("name", COUNTED)
def test_what_is_made_grows_with_the_length(name):
    short, long = (work(name, n, trains=True).counts() for n in (8, 24))
    assert {k: long[k] > 4 * short[k] for k in short} == dict.fromkeys(short, False)
