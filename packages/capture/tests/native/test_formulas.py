"""Formulas of one number: the results, errors and references are those of Python's operations."""

import math
import operator
import sys

import pytest

from fxstack_capture import native

NUMBERS = (1.5, -0.0, 3, 2**70, math.inf, math.nan, True, 0, -2.5, 1e308)
DOUBLED = (None, (operator.mul, 0, 0), (0.1,), (operator.sub, 1, 2), (operator.truediv, 3, 0), (math.sqrt, 4))


def plain(x):
    return math.sqrt((x * x - 0.1) / x)


def outcome(fn, x):
    try:
        return repr(fn(x))
    except (ArithmeticError, ValueError) as error:
        return repr(error)


@pytest.mark.parametrize("number", NUMBERS)
def test_it_computes_what_python_does(number):
    assert outcome(native.formula(DOUBLED), number) == outcome(plain, number)


def test_no_reference_is_left():
    number, constant = float("3.75"), float("0.1")
    formula = native.formula((None, (constant,), (operator.truediv, 0, 1), (operator.truediv, 2, 1)))
    before = sys.getrefcount(number), sys.getrefcount(constant)
    for value in (number, number, "text"):
        outcome(formula, value) if value is number else pytest.raises(TypeError, formula, value)
    assert (sys.getrefcount(number), sys.getrefcount(constant)) == before


@pytest.mark.parametrize(
    "program",
    [
        (),
        [None],
        (1,),
        ((),),
        ((abs, 0),),
        (None, (abs, 1)),
        (None, (abs, -1)),
        (None, (abs, "0")),
        (None,) * 257,
    ]
    + [(None, (max, 0, 0, 0)), (None, (abs, 2**80))],
)
def test_malformed_programs(program):
    with pytest.raises(ValueError, match="a formula is"):
        native.formula(program)


def test_the_longest_formula():
    steps = ((operator.add, k, 0) for k in range(255))
    assert native.formula((None, *steps))(1) == 256
