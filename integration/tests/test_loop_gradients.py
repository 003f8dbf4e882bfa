"""Gradients of loops and branches for which torch has no rule: against the same loop in plain Python."""

import pytest
import torch
from hop_programs import PLAIN, TORCHS, difference
from torch.utils._pytree import tree_leaves

import fxstack

X = torch.tensor([1.0, 2.0, 3.0])


def integer_result(ops, x):
    return ops.cond(x.sum() > 0, lambda a: (a * 2, a.argmax()), lambda a: (a * 3, a.argmin()), (x,))


def other_sizes(ops, x):
    result = ops.cond(x.sum() > 0, lambda a: a[:2] * 2, lambda a: a * 3, (x,))
    return (result * result).sum()


def written_in_a_branch(ops, x):
    cache = torch.zeros(3)

    def add(a):
        cache.add_(a)
        return cache * 1

    return ops.cond(x.sum() > 0, add, lambda a: cache - a, (x,)), cache * x


def no_iteration(ops, x):
    return ops.while_loop(lambda n, a: n > 3, lambda n, a: (n + 1, a * 2), (torch.tensor(0), x * 3))[1]


def number_of_iterations(ops, x):
    return ops.while_loop(lambda n, a: n > 0, lambda n, a: (n - 1, a * 1.5 + n), (x.shape[0], x))[1]


def float_carried(ops, x):
    return ops.while_loop(lambda f, a: f < 3.5, lambda f, a: (f + 1.0, a * a + f), (0.5, x))[1]


def indexed(ops, x):
    rows = torch.stack([x, x * 2, x * 3])
    return ops.while_loop(lambda n, a: n < 3, lambda n, a: (n + 1, a * rows.select(0, n)), (0, x * 2))[1]


def counted_scan(ops, x):
    def step(carry, row):
        return {"h": carry["h"] * 0.5 + row, "n": carry["n"] + 1}, (row * carry["h"], carry["n"] * 2)

    return ops.scan(step, {"h": x * 1, "n": torch.tensor(0)}, torch.stack([x, x * 2]))


def scan_without_results(ops, x):
    return ops.scan(lambda carry, row: (carry * 0.5 + row, ()), x, torch.stack([x, x * 2]))[0]


def positions(ops, x):
    return ops.map(lambda row: (row * 2, row.argmax()), torch.stack([x, x * 2]))


def nested(ops, x):
    def body(n, a):
        return n + 1, ops.cond(a.sum() > 0, lambda b: counted_scan(ops, b)[0]["h"], lambda b: b.sin(), (a,))

    return ops.while_loop(lambda n, a: n < 2, body, (torch.tensor(0), x))[1]


PROGRAMS = [
    *(integer_result, other_sizes, written_in_a_branch, no_iteration, number_of_iterations, float_carried),
    *(indexed, counted_scan, scan_without_results, positions, nested),
]


def with_gradients(fn, x):
    leaf = x.clone().requires_grad_()
    result = fn(leaf)
    outputs = [y for y in tree_leaves(result) if isinstance(y, torch.Tensor) and y.requires_grad]
    return result, torch.autograd.grad(sum((y * y).sum() for y in outputs), leaf)


@pytest.mark.parametrize("program", PROGRAMS)
@pytest.mark.parametrize("dynamic", [False, True])
def test_gradients(program, dynamic):
    compiled = fxstack.compile(
        lambda x: program(TORCHS, x), backend="aot_eager", fullgraph=True, dynamic=dynamic
    )
    for x in (X, -X - 1):
        found, expected = with_gradients(compiled, x), with_gradients(lambda x: program(PLAIN, x), x)
        assert difference(found, expected) is None
