"""Results that are parts of one ``unbind`` or ``split``: one call makes them all, and they share eager's node."""

import pytest
import torch
from compare import check, compiled, dynamic
from torch.utils._python_dispatch import TorchDispatchMode

PROGRAMS = {
    "unbind": lambda x: x.unbind(1),
    "split": lambda x: x.split(2, 1),
    "uneven": lambda x: x.split(3, 1),
    "sizes": lambda x: x.split([1, 2, 3], 1),
    "chunk": lambda x: x.chunk(3, 1),
    "iterated": lambda x: tuple(x),
    "some": lambda x: (x.unbind(1)[4], x.sum(), x.unbind(1)[1]),
    "one": lambda x: x.unbind(1)[2],
    "twice": lambda x: (*x.unbind(1), *x.unbind(1)),
    "mixed": lambda x: (*x.unbind(1), *x.split(2, 1), *x.unbind(0), x),
    "behind views": lambda x: (*x.t().unbind(0), *x.t()[1:].split(2)),
    "views of parts": lambda x: tuple(part.unsqueeze(0) for part in x.unbind(1)),
    "parts of parts": lambda x: (*x.split(3, 1)[0].unbind(0), *x.split(3, 1)[1].unbind(0)),
    "detached": lambda x: (*x.detach().unbind(0), *[part.detach() for part in x.unbind(1)]),
    "data": lambda x: (*x.data.unbind(0), *[part.data for part in x.split(2)]),
    "of a result": lambda x: (lambda y: (y, *y.unbind(1), *y.split(2, 1)))(x * 2),
    "same part": lambda x: (lambda p: (p[0], p[0], p[1]))(x.unbind(1)),
    "changed": lambda x: (x.mul_(2), *x.unbind(1)),
}


def without_grad(x):
    with torch.no_grad():
        return x.unbind(1)


def matrix():
    return (torch.arange(12.0).view(2, 6),)


def computed():
    return (torch.arange(12.0).view(2, 6).requires_grad_() * 1,)


@pytest.mark.parametrize("name", PROGRAMS)
@pytest.mark.parametrize("make", [matrix, computed])
def test_equals_eager(name, make):
    check(PROGRAMS[name], make)


def test_without_grad():
    check(without_grad, computed)


def half(x):
    return x.split(x.size(1) // 2, 1)


def by_sizes(x):
    return x.split([x.size(1) - 1, 1], 1)


def half_of_rows(x):
    return (*x[1:].split(x.size(1) // 2, 1), x.sum())


@pytest.mark.parametrize("fn", [PROGRAMS["unbind"], half, by_sizes, half_of_rows])
@pytest.mark.parametrize("make", [matrix, computed])
def test_symbolic(fn, make):
    check(fn, make, examples=dynamic)


def test_parts_share_a_node():
    (x,) = computed()
    parts = compiled(PROGRAMS["unbind"], [x])(x)
    assert len({part.grad_fn for part in parts}) == 1
    torch.autograd.backward(parts[1:], [torch.ones(2)] * 5)


class Operators(TorchDispatchMode):
    """How often each operator is called."""

    def __init__(self):
        super().__init__()
        self.calls = {}

    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        self.calls[func.name()] = self.calls.get(func.name(), 0) + 1
        return func(*args, **(kwargs or {}))


@pytest.mark.parametrize(
    ("name", "operator", "count"), [("unbind", "aten::unbind.int", 1), ("twice", "aten::unbind.int", 2)]
)
def test_one_call_makes_all_parts(name, operator, count):
    (x,) = matrix()
    call = compiled(PROGRAMS[name], [x])
    call(x)
    with Operators() as seen:
        call(x)
    assert seen.calls == {operator: count}
