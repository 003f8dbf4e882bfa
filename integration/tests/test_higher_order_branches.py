"""Branches whose sizes differ, that a number from data decides, and whose operands the program changes later."""

import pytest
import torch
from hop_programs import PLAIN, TORCHS

import fxstack


def other_sizes(ops, x, flag):
    """The gradient of a branch has the size of its own result."""

    def fn(x):
        y = ops.cond(flag.sum() > 0, lambda x: x[:2].clone(), lambda x: x.softmax(-1), (x,))
        return (y * y).sum()

    return torch.func.grad(fn)(x.detach()) + x


def decided_by_the_iteration(ops, x, flag):
    def body(i, x):
        return i + 1, ops.cond(i > 1, lambda x: x.sin(), lambda x: x * 2, (x,))

    return ops.while_loop(lambda i, x: i < 4, body, (0, x))[1]


def decided_by_an_integer(ops, x, flag):
    def body(i, x):
        return i + 1, ops.cond(i % 2, lambda x: x.sin(), lambda x: x * 2, (x,))

    return ops.while_loop(lambda i, x: i < 4, body, (0, x))[1]


def with_the_iteration_as_operand(ops, x, flag):
    def body(i, x):
        yes, no = (lambda d: {"x": d["x"].sin() + d["i"]}), (lambda d: {"x": d["x"] * (d["i"] + 1)})
        return i + 1, ops.cond(flag.sum() > 0, yes, no, ({"i": i, "x": x},))["x"]

    return ops.while_loop(lambda i, x: i < 4, body, (0, x))[1]


def with_numbers_of_an_expression(ops, x, flag):
    """Both branches, and the scan around them, compute the same expression of a number from outside."""

    def body(i, x):
        def step(x, _):
            yes, no = (lambda x: (x.sin(), i + 1)), (lambda x: (x * 2, i + 1))
            y, n = ops.cond(x.sum() > 0, yes, no, (x,))
            return y * n, y

        return i + 1, ops.scan(step, x, torch.zeros(2))[0]

    return ops.while_loop(lambda i, x: i < 2, body, (0, x))[1]


def elements_used_inside(ops, x, flag):
    """The first use of the result of ``map`` is in a nested function."""
    y = ops.map(lambda x: x * 2, x)
    return ops.map(lambda x: ops.cond(y.sum() > 0, lambda x: x + y, lambda x: x - y, (x,)), x)


def changes_a_counter_later(ops, x, flag):
    """Autograd need not save an integer operand."""
    counter = flag.sum().long()
    y = ops.cond(counter > 0, lambda x, n: x.cos() + n, lambda x, n: x.sin() + n, (x, counter))
    counter.add_(1)
    return y * 2


PROGRAMS = (
    other_sizes,
    decided_by_the_iteration,
    decided_by_an_integer,
    with_the_iteration_as_operand,
    with_numbers_of_an_expression,
    elements_used_inside,
    changes_a_counter_later,
)


@pytest.mark.parametrize("backend", ["aot_eager", "inductor"])
@pytest.mark.parametrize("program", PROGRAMS)
def test_values_and_gradients_are_those_of_plain_python(program, backend):
    compiled = fxstack.compile(lambda x, flag: program(TORCHS, x, flag), backend=backend, fullgraph=True)
    for flag in (torch.ones(2), -torch.ones(2)):
        x, y = (torch.tensor([0.3, 1.2, -0.7], requires_grad=True) for _ in range(2))
        found, expected = compiled(x, flag), program(PLAIN, y, flag)
        torch.testing.assert_close(found, expected)
        gradients = (torch.autograd.grad(z.sum(), leaf)[0] for z, leaf in ((found, x), (expected, y)))
        torch.testing.assert_close(*gradients)
