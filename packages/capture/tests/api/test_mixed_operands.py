"""Operators between tensors and objects of a program's own classes: who is asked, and in what order."""

import operator

import pytest
import torch
from beside import breaks_beside_plain

from fxstack_capture import native, optimize
from fxstack_capture import operator_protocol as protocol

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


class Same:
    """``!=`` is what ``__eq__`` says, inverted: object.__ne__ asks it."""

    def __eq__(self, other):
        return other.ndim == 1

    __hash__ = None


class Silent:
    pass


class Modest(torch.Tensor):
    """A class of tensors that leaves plain objects to their own methods."""

    def __add__(self, other):
        return super().__add__(other) * 2 if isinstance(other, torch.Tensor) else NotImplemented


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
    "unequal": lambda a, x: (Same() != x, x != Same(), Same() == x),
    "class_of_tensors": lambda a, x: x.as_subclass(Modest) + a,
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


def test_the_order_of_methods_is_that_of_cpython():
    """``candidates`` names the methods that CPython calls until the last one gives NotImplemented, too."""
    asked = []

    def answering(index, name):
        return lambda self, other: asked.append((index, name)) or NotImplemented

    functions = (*protocol.ARITHMETIC, *protocol.COMPARISONS, *protocol.IN_PLACE)
    names = {
        name
        for op in functions
        for kinds in ((int, str), (str, int))
        for _, name in protocol.candidates(op, kinds, getattr)
    }
    left = type("Left", (), {name: answering(0, name) for name in names})
    heir = type("Heir", (left,), {})
    other, own = (type("Right", bases, {n: answering(1, n) for n in names}) for bases in ((), (left,)))
    for op in functions:
        for right, distinct in ((other, True), (own, True), (heir, False), (left, False)):
            asked.clear()
            try:
                result = op(left(), right())
            except TypeError as error:
                assert str(error) == protocol.type_error(op, "Left", right.__name__)
            else:
                assert result is protocol.by_identity(op, 0, 1)
            expected = list(
                protocol.candidates(op, (left, right), lambda cls, name: getattr(cls, name, None))
            )
            assert [name for _, name in asked] == [name for _, name in expected], (op, right)
            assert not distinct or asked == expected, (op, right)


@pytest.mark.parametrize("op", [operator.eq, operator.ne, operator.lt])
@pytest.mark.parametrize("number", [0.5, 2])
def test_a_symbolic_number_is_no_object_of_a_class_of_its_own(op, number):
    x = torch.tensor([-0.5, -2.0, 1.0])
    compiled = optimize(dynamic=True)(lambda x, s: op(x.neg(), s))
    assert torch.equal(compiled(x, number), op(x.neg(), number))
