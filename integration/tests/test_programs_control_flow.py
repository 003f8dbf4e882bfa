"""``torch.cond``, ``while_loop``, ``map``, ``scan`` and ``associative_scan`` inside compiled functions."""

import functools

import pytest
import torch
from beside_eager import Programs, attempt
from hop_programs import PLAIN, TORCHS
from torch import nn
from torch._higher_order_ops import associative_scan, map, scan, while_loop
from torch.nn import functional as F
from torch.utils.checkpoint import checkpoint

import fxstack

program = Programs()


def data(*sizes):
    return [torch.randn(*size) for size in sizes]


def both_ways(c, fn, *args):
    """Called with the arguments, and with them negated: the graph serves both branches."""
    compiled = c(fn)
    return compiled(*args), compiled(*(-x for x in args)), compiled(*args)


@program(graphs=1, breaks=0)
def cond_takes_either_branch(c):
    return both_ways(
        c, lambda x: torch.cond(x.sum() > 0, lambda a: a.sin(), lambda a: a - 1, (x,)) * 2, *data((3,))
    )


@program(graphs=1, breaks=0)
def cond_closes_over_tensors_and_modules(c):
    model, (w,) = nn.Linear(3, 3), data((3,))

    def fn(x):
        y = x * 3
        return torch.cond(x.sum() > 0, lambda a: model(a) + y, lambda a: a * w, (x,))

    return both_ways(c, fn, *data((2, 3)))


@program(graphs=1, breaks=0)
def cond_nested_with_containers(c):
    def inner(a, b):
        return torch.cond(a.mean() > b.mean(), lambda a, b: {"s": a + b}, lambda a, b: {"s": b - a}, (a, b))

    def fn(x, y):
        return torch.cond(x.sum() > 0, inner, lambda a, b: {"s": a * b}, (x, y))

    return both_ways(c, fn, *data((3,), (3,)))


@program(graphs=1, breaks=0)
def cond_is_differentiated(c):
    model = nn.Linear(3, 3)
    fn = c(lambda x: torch.cond(x.sum() > 0, lambda a: model(a).tanh(), lambda a: a.exp(), (x,)))
    (x,) = data((2, 3))
    x.requires_grad_()
    fn(x.abs()).sum().backward()
    (fn(-x.abs()) * 2).sum().backward()
    return x, model


@program(breaks=0)
def cond_on_what_python_knows(c):
    fn = c(lambda x: torch.cond(x.shape[0] > 3, lambda a: a + 1, lambda a: a - 1, (x,)))
    return [fn(x) for x in data((2,), (5,), (3,))]


@program()
def cond_of_a_wrong_predicate(c):
    return attempt(c(lambda x: torch.cond(x > 0, torch.sin, torch.cos, (x,))), *data((3,)))


@program()
def cond_whose_branch_writes_to_a_list(c):
    seen = []

    def branch(a):
        seen.append(1)
        return a + 1

    def fn(x):
        return torch.cond(x.sum() > 100, branch, lambda a: a - 1, (x,))

    compiled = c(fn)
    outcome = attempt(compiled, *data((3,)))
    return isinstance(outcome, tuple) or outcome, seen[1:]


@program(graphs=1, breaks=0)
def while_loop_counts(c):
    def fn(x):
        return while_loop(lambda i, a: i < 3, lambda i, a: (i + 1, a * 2), (torch.tensor(0), x))

    return both_ways(c, fn, *data((3,)))


@program(graphs=1, breaks=0)
def while_loop_until_converged_with_a_closure(c):
    (w,) = data((3,))

    def fn(x):
        (out,) = while_loop(lambda a: a.abs().sum() > 0.1, lambda a: (a * 0.5 * w.sigmoid(),), (x,))
        return out + w

    return both_ways(c, fn, *data((3,)))


@program()
def while_loop_reads_the_number_that_it_carries(c):
    xs = torch.arange(6.0).view(3, 2)

    def body(i, a):
        return i + 1, a + xs[i.item()]

    def fn():
        return while_loop(lambda i, a: i < 3, body, (torch.tensor(0), torch.zeros(2)))

    return c(fn)()


@program()
def scan_reads_the_number_that_it_carries(c):
    xs = torch.arange(6.0).view(3, 2)
    return c(lambda: scan(lambda t, x: (t + 1, x * t.item()), torch.tensor(1), xs))()


@program(graphs=1, breaks=0)
def while_loop_returns_what_its_body_returns(c):
    def fn(x):
        return while_loop(lambda d: d["x"][0].sum() < 10, lambda d: {"x": [d["x"][0] + 1]}, ({"x": [x]},))

    return c(fn)(torch.zeros(2))


@program()
def loop_that_writes_to_its_carry(c):
    def fn(x):
        return while_loop(lambda a: a.sum() < 3, lambda a: (a.add_(1),), (x,))

    x = torch.zeros(2)
    return attempt(c(fn), x)[0], x


@program(graphs=1, breaks=0)
def map_with_a_closure_is_differentiated(c):
    x, w = data((4, 3), (3,))
    x.requires_grad_()
    w.requires_grad_()
    out = c(lambda x, y: map(lambda a, b: (a * b + w).sin(), x, y))(x, torch.ones(3))
    out.sum().backward()
    return out * 1, x, w


@program(graphs=1, breaks=0)
def scan_as_a_recurrent_network(c):
    cell, (h, xs) = nn.RNNCell(3, 2), data((4, 2), (5, 4, 3))

    def step(h, x):
        h = cell(x, h)
        return h, h.clone()

    last, outputs = c(lambda h, xs: scan(step, h, xs))(h, xs)
    outputs.pow(2).sum().backward()
    return last, outputs, cell


@program(graphs=1, breaks=0)
def scan_backwards_over_another_dimension(c):
    x, h = data((4, 3), (4,))
    return c(lambda h, x: scan(lambda c, a: (c * a, c + 1), h, x, dim=1, reverse=True))(h, x)


@program(graphs=1, breaks=0)
def associative_scan_of_products(c):
    return both_ways(
        c, lambda x: associative_scan(lambda a, b: a * b, x, dim=0, combine_mode="generic"), *data((4, 3))
    )


@program(breaks=0)
def control_flow_of_several_sizes(c):
    fn = c(lambda x: torch.cond(x.sum() > 0, lambda a: a * a.shape[0], lambda a: a - 1, (x,)))
    return [fn(x) for x in data((3, 2), (4, 2), (5, 2), (7, 2))]


@program(graphs=1, breaks=0, options={"capture_scalar_outputs": True})
def sizes_that_depend_on_data(c):
    def fn(x, n):
        k = n.item()
        torch._check(k >= 0)
        torch._check(k <= x.shape[0])
        return x[:k] * 2, x.new_zeros(k) + 1

    fn = c(fn)
    return [fn(x, torch.tensor(n)) for x in data((5,)) for n in (2, 0, 5, 3)]


@program(graphs=1, breaks=0, options={"capture_dynamic_output_shape_ops": True})
def results_whose_size_depends_on_data(c):
    fn = c(lambda x: (x[x > 0] * 2, x.nonzero().sum(0)))
    return [fn(x) for x in data((5,), (5,), (5,))]


test_program = program.tests()


def test_torchs_compiler_still_works_under_ours_and_beside_it():
    """Both put a frame evaluator below the other: a frame that is handed in a circle would never end."""
    import fxstack  # noqa: PLC0415

    graphs = []

    def backend(graph_module, _inputs):
        graphs.append(graph_module)
        return graph_module.forward

    inner = torch.compile(lambda x: x * 2, backend=backend)

    def fn(x):
        print(end="")
        return inner(x + 1).sin()

    (x,) = data((3,))
    compiled = fxstack.compile(fn, backend="eager")
    for _ in range(2):
        assert torch.equal(inner(x), x * 2)
        assert torch.equal(compiled(x), ((x + 1) * 2).sin())
        assert isinstance(attempt(torch.compile(lambda x: 1 / 0, backend=backend), x), tuple)
        assert torch.equal(fxstack.compile(fn, backend="eager")(x), ((x + 1) * 2).sin())
    assert graphs


@pytest.mark.parametrize("backend", ["aot_eager", "inductor"])
def test_a_scan_that_is_indexed_by_what_it_carries(backend):
    """Eager compiles the body by torch.compile, which refuses it."""
    table, xs = torch.tensor([1.0, 10.0, 100.0]), torch.arange(6.0).view(3, 2)

    @fxstack.compile(backend=backend, fullgraph=True)
    def fn(xs):
        return scan(lambda i, x: (i + 1, x * table[i]), torch.tensor(0), xs)

    last, found = fn(xs)
    assert last == 3
    assert torch.equal(found, xs * table.unsqueeze(1))


def _halved(x):
    return F.dropout(x * 2)


def _chosen(x):
    return torch.cond(x.sum() > 0, _halved, lambda a: a - 1, (x,))


DRAWING = {
    "cond": _chosen,
    "cond twice": lambda x: _chosen(F.dropout(_chosen(x), 0.2)),
    "cond in cond": lambda x: torch.cond(x.sum() > 0, _chosen, lambda a: a - 1, (x,)),
    "rand_like": lambda x: torch.cond(x.sum() > 0, lambda a: a * (torch.rand_like(a) > 0.5), torch.neg, (x,)),
    "map": lambda x: map(_halved, x),
    "cond in map": lambda x: map(_chosen, x),
    "scan": lambda x: scan(lambda c, r: (c + 1, _halved(r)), x[0].detach(), x)[1],
    "cond in scan": lambda x: scan(lambda c, r: (c + 1, _chosen(r)), x[0].detach(), x)[1],
    "while_loop": lambda x: while_loop(lambda i, y: i < 3, lambda i, y: (i + 1, _halved(y)), (COUNT, x))[1],
    "cond in a checkpoint": lambda x: checkpoint(_chosen, x, use_reentrant=False),
    "cond in a region": torch.compiler.nested_compile_region(_chosen),
}
COUNT = torch.zeros((), dtype=torch.int64)


@pytest.mark.parametrize("name", DRAWING)
@pytest.mark.parametrize("dynamic", [False, True])
def test_a_gradient_has_the_random_numbers_of_its_result(name, dynamic):
    """In eager the backward of these operators draws again, so the gradient of torch's own is another."""
    torch.manual_seed(1)
    x = torch.rand(4, 8).add(1).requires_grad_()
    result = fxstack.compile(DRAWING[name], backend="aot_eager", dynamic=dynamic, fullgraph=True)(x)
    after = torch.get_rng_state()
    result.sum().backward()
    assert torch.equal(result != 0, x.grad != 0)
    assert 0 < result.count_nonzero() < result.numel()
    assert torch.equal(torch.get_rng_state(), after)
    torch.manual_seed(1)
    torch.testing.assert_close(DRAWING[name](torch.rand(4, 8).add(1)), result.detach())


SIZED = {
    "scan": lambda x: scan(lambda c, r: (c + r.sum(), r.mean() * r.expand(3, -1)), torch.zeros(()), x)[1],
    "scan without use of its carry": lambda x: scan(lambda c, r: (c * 1, r.sum()), torch.zeros(()), x)[1],
    "map": lambda x: map(lambda r: r.sum() * torch.cat([r, r]).softmax(-1), x),
    "cond": lambda x: torch.cond(
        x.sum() > 0, lambda a: a.mean() * a, lambda a: a.sum(0, keepdim=True) + a, (x,)
    ),
    "while_loop": lambda x: while_loop(lambda i, y: i < 2, lambda i, y: (i + 1, y * y.mean()), (COUNT, x))[1],
    "associative_scan": lambda x: associative_scan(torch.add, x.sin(), 0, combine_mode="generic"),
}


@pytest.mark.parametrize("name", SIZED)
@pytest.mark.filterwarnings("error:fxstack")
def test_bodies_whose_gradients_need_a_size(name):
    fn = fxstack.compile(SIZED[name], backend="aot_eager", dynamic=True, fullgraph=True)
    for sizes in ((4, 6), (3, 9), (5, 4)):
        x = torch.rand(*sizes, requires_grad=True)
        expected, actual = (f(x) for f in (SIZED[name], fn))
        weights = torch.rand_like(expected)
        torch.testing.assert_close(actual, expected)
        gradients = [torch.autograd.grad((y * weights).sum(), x)[0] for y in (actual, expected)]
        torch.testing.assert_close(*gradients)


TABLE = torch.arange(24.0).reshape(8, 3)
SHARED = {
    "carry and closure": lambda ops, x: ops.while_loop(
        lambda i, _: i < 3, lambda i, y: (i + 1, y * 0.5 + x), (COUNT, x)
    )[1],
    "a view of an operand": lambda ops, x: ops.cond(
        x.sum() > 0, lambda a, b: a + b, lambda a, b: a * b, (x, x[0])
    ),
    "nested": lambda ops, x: ops.map(
        lambda r: ops.cond(r.sum() > 0, lambda a, b: a + b, lambda a, b: a * b, (r, r)), x
    ),
    "a number": lambda ops, x: ops.scan(
        lambda c, r: (c + TABLE[(COUNT + 3) % 8, :2].sum(), r + c), x[0] * 1, x
    )[1],
    "a loop in a scan": lambda ops, x: ops.scan(
        lambda c, r: (
            c * 1,
            ops.while_loop(lambda i, _: i < 2, lambda i, y: (i + 1, y.cos()), (COUNT, r))[1] + c,
        ),
        x[0] * 1,
        x,
    )[1],
    "a row by a number": lambda ops, x: ops.map(lambda r: r * TABLE[(COUNT + 3) % 8].sum(), x),
}


@pytest.mark.parametrize("name", SHARED)
@pytest.mark.filterwarnings("error:fxstack")
def test_operands_that_share_memory_and_numbers_of_tensors(name):
    # eager torch refuses some of these programs
    fn = fxstack.compile(lambda x: SHARED[name](TORCHS, x), backend="aot_eager", fullgraph=True)
    plain = functools.partial(SHARED[name], PLAIN)
    for x in (torch.rand(4, 2, requires_grad=True), torch.rand(4, 2)):
        actual, expected = fn(x), plain(x)
        torch.testing.assert_close(actual, expected)
        if x.requires_grad:
            torch.testing.assert_close(*(torch.autograd.grad(y.sum(), x)[0] for y in (actual, expected)))


UNUSED = {
    "while_loop": lambda x: while_loop(
        lambda i, _: i < 2, lambda i, y: (i + 1, y + torch.rand_like(y)), (COUNT, x)
    ),
    "cond": lambda x: torch.cond(x.sum() > 0, lambda a: a + torch.rand_like(a), lambda a: a * 1, (x,)),
    "cond in map": lambda x: map(UNUSED["cond"], x),
}


@pytest.mark.parametrize("name", UNUSED)
@pytest.mark.parametrize("backend", ["aot_eager", "inductor"])
def test_numbers_that_nobody_uses_are_drawn(name, backend):
    def fn(x):
        UNUSED[name](x)
        return x * 2

    following = []
    for f in (fn, fxstack.compile(fn, backend=backend)):
        torch.manual_seed(0)
        f(torch.ones(4, 2))
        following.append(torch.rand(1))
    assert torch.equal(*following)


def _count_in_map(ops, x, seen, more):
    def row(r):
        seen.add_(1)
        return r * seen.clone() + more

    return ops.map(row, x)


WRITING = {
    "map in while_loop": lambda ops, x, seen: ops.while_loop(
        lambda i, _: i < 2, lambda i, y: (i + 1, _count_in_map(ops, y, seen, i)), (COUNT, x)
    )[1],
    "map in cond": lambda ops, x, seen: ops.cond(
        x.sum() > 0, lambda y: _count_in_map(ops, y, seen, 1), lambda y: y * 1, (x,)
    ),
    "cond in scan": lambda ops, x, seen: ops.scan(
        lambda c, r: (
            ops.cond(c.sum() > 0, lambda c: c * seen.add_(1).clone(), lambda c: c + 1, (c,)),
            c + r,
        ),
        x[0] * 1,
        x,
    )[1],
}


@pytest.mark.parametrize("name", WRITING)
@pytest.mark.filterwarnings("error:fxstack")
def test_writes_to_the_outside_from_two_functions_deep(name):
    for requires_grad in (False, True):
        results = []
        for ops, wrap in (
            (PLAIN, lambda f: f),
            (TORCHS, lambda f: fxstack.compile(f, backend="aot_eager", fullgraph=True)),
        ):
            seen, x = torch.zeros(()), torch.arange(4.0).reshape(2, 2).requires_grad_(requires_grad)
            result = wrap(lambda x, ops=ops, seen=seen: WRITING[name](ops, x, seen))(x)
            results.append((result, seen))
            if requires_grad:
                results[-1] += torch.autograd.grad(result.sum(), x)
        torch.testing.assert_close(*results)


@pytest.mark.parametrize("backend", ["eager", "aot_eager"])
def test_a_written_tensor_has_the_history_of_what_was_written(backend):
    for write in (lambda buffer, x: buffer.add_(x.detach()), lambda buffer, x: buffer.add_(x)):
        results = []
        for ops, wrap in ((PLAIN, lambda f: f), (TORCHS, lambda f: fxstack.compile(f, backend=backend))):
            buffer, x = torch.zeros(3), torch.ones(3, requires_grad=True)

            def yes(x, buffer=buffer, write=write):
                write(buffer, x)
                return x * 2

            fn = wrap(lambda x, ops=ops, yes=yes: ops.cond(x.sum() > 0, yes, lambda x: x * 1, (x,)))
            results.append((fn(x), buffer.clone(), buffer.requires_grad))
        torch.testing.assert_close(results[1][:2], results[0][:2])
        assert results[1][2] == results[0][2]


def test_a_region_in_a_branch_draws_the_numbers_of_eager():
    def region(ops, x):
        return ops.region(lambda x: (F.dropout(x, 0.5), x * 1)[1], x) + torch.rand_like(x)

    def fn(ops, x):
        return ops.cond(x.sum() > 0, lambda x: region(ops, x), lambda x: x * 1, (x,))

    x, results = torch.ones(8, requires_grad=True), []
    compiled = fxstack.compile(functools.partial(fn, TORCHS), backend="aot_eager")
    for f in (functools.partial(fn, PLAIN), compiled):
        torch.manual_seed(0)
        results.append(f(x))
    torch.testing.assert_close(*results)
