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


def multiplied(ops, x):
    return ops.associative_scan(lambda a, b: a * b.sin() + b, x, 0, combine_mode="generic")


def recurrent(ops, x):
    pairs = (x.sin(), x * 2)
    combine = lambda p, q: (p[0] * q[0], q[0] * p[1] + q[1])
    return ops.associative_scan(combine, pairs, 0, combine_mode="pointwise")[1]


def with_closure(ops, x):
    return ops.scan(lambda c, row: (c * row + x.sin().sum(), (c * c).sin()), x[1] * 1, x)


AGAIN = [p for p in PROGRAMS if p is not written_in_a_branch]  # which takes float32 alone


@pytest.mark.parametrize("backend", ["aot_eager", "inductor"])
@pytest.mark.parametrize("program", [*AGAIN, multiplied, recurrent, with_closure])
def test_gradients_of_gradients(program, backend):
    """The second and third gradients of a compiled call by ``autograd.grad``."""

    def total(ops, x):
        outputs = [y for y in tree_leaves(program(ops, x)) if torch.is_tensor(y) and y.is_floating_point()]
        return sum((y * y * y).sum() for y in outputs)

    def gradients(fn):
        leaf = X.double().requires_grad_()
        found = [fn(leaf)]
        for _ in range(3):
            found += torch.autograd.grad((found[-1] ** 2).sum(), leaf, create_graph=True)
        return found

    compiled = fxstack.compile(lambda x: total(TORCHS, x), backend=backend, fullgraph=True)
    torch.testing.assert_close(gradients(compiled), gradients(lambda x: total(PLAIN, x)))


def loop(ops, x):
    """A loop whose number of iterations depends on its values."""
    return ops.while_loop(lambda m: m.sum() < 10, lambda m: (m * m + x,), (x,))[0].pow(2).sum()


def counted(ops, x):
    return ops.while_loop(lambda n, m: n < 3, lambda n, m: (n + 1, m * m), (torch.tensor(0), x))[1].sum()


def without_iteration(ops, x):
    return ops.while_loop(lambda m: m.sum() > 1e9, lambda m: (m * 2,), (x * 3,))[0].sum()


@pytest.mark.parametrize("backend", ["aot_eager", "inductor"])
@pytest.mark.parametrize("order", [1, 2])
@pytest.mark.parametrize("function", [loop, counted, without_iteration])
def test_gradients_of_loops_by_torch_func(function, order, backend):
    """The gradient by ``torch.func``, and the gradient of that by autograd."""

    def program(ops, x):
        fn = lambda x: function(ops, x)
        for _ in range(order):
            inner = fn
            fn = lambda x, inner=inner: torch.func.grad(inner)(x).sum()
        return fn(x)

    expected, found = X.clone().requires_grad_(), X.clone().requires_grad_()
    compiled = fxstack.compile(lambda x: program(TORCHS, x), backend=backend, fullgraph=True)
    results = program(PLAIN, expected), compiled(found)
    torch.testing.assert_close(results[1], results[0])
    if results[0].requires_grad:
        pairs = zip(results, (expected, found), strict=True)
        first, second = (torch.autograd.grad(y, x, allow_unused=True)[0] for y, x in pairs)
        torch.testing.assert_close(second, torch.zeros_like(X) if first is None else first)


@pytest.mark.parametrize("backend", ["aot_eager", "inductor"])
def test_gradients_of_loops_of_different_lengths_under_vmap(backend):
    x = torch.tensor([[1.0, 2.0, 3.0], [0.1, 0.2, 0.3], [9.0, 9.0, 9.0]])
    fn = torch.vmap(torch.func.grad(lambda x: loop(TORCHS, x)))
    expected = torch.stack([torch.func.grad(lambda x: loop(PLAIN, x))(row) for row in x])
    torch.testing.assert_close(fxstack.compile(fn, backend=backend, fullgraph=True)(x), expected)


def row_loop(ops, x):
    return ops.while_loop(lambda i, x: x.abs() < 3, lambda i, x: (i + 1, x * x * 1.1), (torch.tensor(0), x))[
        1
    ]


UNDER_TRANSFORMS = {
    "grad of vmap": (
        lambda f: lambda x: torch.func.grad(lambda x: torch.vmap(f)(x).sum())(x),
        lambda f: lambda x: torch.stack([torch.func.grad(f)(row) for row in x]),
    ),
    "vmap of grad": (
        lambda f: torch.vmap(torch.func.grad(f)),
        lambda f: lambda x: torch.stack([torch.func.grad(f)(row) for row in x]),
    ),
    "grad of vmap of grad": (
        lambda f: lambda x: torch.func.grad(lambda x: torch.vmap(torch.func.grad(f))(x).sum())(x),
        lambda f: lambda x: torch.stack([torch.func.grad(torch.func.grad(f))(row) for row in x]),
    ),
    "jacobian of vmap": (
        lambda f: torch.func.jacrev(torch.vmap(f)),
        lambda f: lambda x: torch.diag(torch.stack([torch.func.grad(f)(row) for row in x])),
    ),
}


@pytest.mark.parametrize("name", UNDER_TRANSFORMS)
def test_examples_with_different_numbers_of_iterations(name):
    mapped, by_row = UNDER_TRANSFORMS[name]
    x = torch.tensor([1.2, 2.0, 5.0, 1.05])
    compiled = fxstack.compile(mapped(lambda x: row_loop(TORCHS, x)), backend="aot_eager", fullgraph=True)
    torch.testing.assert_close(compiled(x), by_row(lambda x: row_loop(PLAIN, x))(x))
