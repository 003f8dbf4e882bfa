"""Operators between tensors and objects of a program's own classes: who is asked, and in what order."""

import operator

import pytest
import torch
from beside import breaks_beside_plain

from fxstack_capture import native, optimize

pytestmark = pytest.mark.skipif(not native.AVAILABLE, reason="needs the frame hook")


class Asked:
    """Answers what it is asked, and says what that was."""

    def __init__(self, value):
        self.value, self.asked = value, []

    def __add__(self, other):
        self.asked.append("add")
        return self.value + other

    def __radd__(self, other):
        self.asked.append("radd")
        return other - self.value

    def __iadd__(self, other):
        self.asked.append("iadd")
        return self.value * other

    def __rmul__(self, other):
        self.asked.append("rmul")
        return NotImplemented if other.ndim > 1 else other * self.value

    def __matmul__(self, other):
        return other @ self.value

    def __eq__(self, other):
        self.asked.append("eq")
        return NotImplemented

    def __lt__(self, other):
        return other.sum() + self.value

    __hash__ = None


class Silent:
    pass


def in_place(a, x):
    a += x
    return a


def tensor_in_place(a, x):
    x += a
    return x


PROGRAMS = {
    "left": lambda a, x: a + x,
    "right": lambda a, x: x + a,
    "in_place": in_place,
    "tensor_in_place": tensor_in_place,
    "reflected": lambda a, x: x * a,
    "matmul": lambda a, x: a @ x,
    "equal": lambda a, x: (a == x, x == a, a != x, x != a),
    "less": lambda a, x: (a < x, x > a),
    "silent": lambda a, x: (x == Silent(), Silent() != x),
}


@pytest.mark.parametrize("name", PROGRAMS)
def test_the_objects_class_decides(name):
    def program(x, value):
        asked = Asked(value)
        return PROGRAMS[name](asked, x), asked.asked

    assert not breaks_beside_plain(program, lambda: (torch.arange(3.0), torch.ones(3)))


def test_nobody_knows():
    def program(x, value):
        return x * Asked(value)

    assert breaks_beside_plain(program, lambda: (torch.ones(2, 2), 2.0)) == ["unsupported-call"]


@pytest.mark.parametrize("op", [operator.eq, operator.ne, operator.lt])
@pytest.mark.parametrize("number", [0.5, 2])
def test_a_symbolic_number_is_no_object_of_a_class_of_its_own(op, number):
    x = torch.tensor([-0.5, -2.0, 1.0])
    compiled = optimize(dynamic=True)(lambda x, s: op(x.neg(), s))
    assert torch.equal(compiled(x, number), op(x.neg(), number))
