"""The text of index expressions, run as Python: it gives the value of the expression."""

import random

import pytest

from fxstack_inductor.codegen.index_text import c_index
from fxstack_inductor.ir.expr import integer, loop_var, mod, value_var

HELPERS = {"remainder_int64_t": lambda a, b: a % b, "wrapped_int64_t": lambda a, b: a + b if a < 0 else a}
A, B = loop_var("i", 7), loop_var("j", 5)


@pytest.mark.parametrize(
    ("num", "size", "helper"),
    [
        (A - 3, 7, "wrapped_int64_t"),
        (A + 3, 7, "wrapped_int64_t"),
        (A - 3, 6, "wrapped_int64_t"),
        (A - B, 7, "wrapped_int64_t"),
        (A * 3 - 20, 11, "wrapped_int64_t"),
        (A * 5 - B * 3 - 1, 11, "remainder_int64_t"),
        (A * 5, 11, "%"),
        (value_var("v1") - 3, 7, "remainder_int64_t"),
    ],
)
def test_remainders(num, size, helper):
    text = c_index(mod(num, integer(size)))
    assert helper in text
    for i in range(7):
        for j in range(5):
            values = {"i": i, "j": j, "v1": i}
            assert eval(text, HELPERS, values) == num.evaluate(values) % size


def test_random_remainders():
    draw, wrapped = random.Random(1), 0
    for _ in range(500):
        num = A * draw.randint(-3, 3) + B * draw.randint(-3, 3) + draw.randint(-40, 40)
        size = draw.randint(2, 40)
        text = c_index(mod(num, integer(size)))
        wrapped += "wrapped" in text
        for values in ({"i": i, "j": j} for i in range(7) for j in range(5)):
            assert eval(text, HELPERS, values) == num.evaluate(values) % size
    assert wrapped > 50
