"""Operators that call functions (branches, loops): compiled functions, with the results of torch's operators."""

import json

import pytest
import torch
from inductor_checks import FAST, assert_equal, copies
from torch._higher_order_ops import scan, while_loop
from torch._higher_order_ops.map import map as map_over
from torch.fx.experimental.proxy_tensor import make_fx

import fxstack_inductor as fi
from fxstack_inductor.compiled_store import ProgramCache
from fxstack_inductor.lower.nested.graphs import NestedGraphs, structure
from fxstack_inductor.repro.script import script

X, XS, W = torch.randn(4), torch.randn(5, 4), torch.randn(4, 4)


def trace(fn, *inputs, symbolic=False):
    return make_fx(fn, tracing_mode="symbolic" if symbolic else "fake")(*inputs)


def check(fn, *inputs, symbolic=False, others=(), **options):
    """Compile ``fn`` and compare with the graph that torch runs; return the callable."""
    graph = trace(fn, *inputs, symbolic=symbolic)
    chosen = fi.InductorOptions(optimization=1, use_cache=False, **options)
    compiled = fi.compile_graph(graph, inputs, chosen)
    for args in (inputs, *others):
        assert_equal(compiled(*copies(args)), graph(*copies(args)))
    return compiled


def counted(x, n):
    return while_loop(
        lambda i, x: i < n, lambda i, x: (i + 1, (x * 2).sin()), (torch.zeros((), dtype=torch.int64), x)
    )


def branches(p, x):
    return torch.cond(p, lambda x: (x.sin() + 1,), lambda x: (x.cos() * 2,), (x,))


def recurrent(x, xs, w):
    return scan(lambda c, x: ((c @ w + x).tanh(), (c * x).exp()), x, xs)


def mapped(xs, w):
    return (map_over(lambda x, w: (w @ x).relu(), xs, w),)


def nested_loops(x, xs):
    def step(c, x):
        _, c = while_loop(
            lambda i, c: i < 3, lambda i, c: (i + 1, c * x), (torch.zeros((), dtype=torch.int64), c)
        )
        return c + 1, c.sum()

    return scan(step, x, xs)


CALLS = [
    (lambda x: counted(x, 7), (X,)),
    (lambda x: counted(x, 0), (X,)),
    (branches, (torch.tensor(True), X)),
    (branches, (torch.tensor(False), X)),
    (recurrent, (X, XS, W)),
    (recurrent, (X, XS[:1], W)),
    (mapped, (XS, W)),
    (nested_loops, (X, XS)),
]


@pytest.mark.parametrize("host", ["native", "python"])
@pytest.mark.parametrize(("fn", "inputs"), CALLS)
def test_results_are_torch_s(fn, inputs, host):
    check(fn, *inputs, host=host)


def test_both_branches_of_one_program():
    check(branches, torch.tensor(True), X, others=[(torch.tensor(False), X)])


def test_a_length_that_changes():
    check(recurrent, X, XS, W, symbolic=True, others=[(X, torch.randn(9, 4), W)])


def test_a_stored_program_runs_its_functions():
    graph, inputs = trace(recurrent, X, XS, W), (X, XS, W)
    cache = ProgramCache(FAST)
    record = json.loads(json.dumps(cache.pack(fi.compile_graph(graph, inputs, FAST))))
    assert_equal(cache.unpack(record, lambda: graph)(*inputs), graph(*inputs))


def test_an_index_out_of_range_in_a_function_raises_eager_s_error():
    fn = lambda p, x, i: torch.cond(p, lambda x, i: (x[i] * 2,), lambda x, i: (x[i] + 1,), (x, i))
    compiled = check(fn, torch.tensor(True), X, torch.tensor([1, 2]))
    with pytest.raises(IndexError):
        compiled(torch.tensor(True), X, torch.tensor([1, 4]))
    assert_equal(compiled(torch.tensor(True), X, torch.tensor([3, 0])), (X[[3, 0]] * 2,))


def test_equal_functions_are_one():
    graph = trace(lambda x, xs, w: (*recurrent(x, xs, w), *recurrent(x + 1, xs, w)), X, XS, W)
    modules = [module for _, module in graph.named_children()]
    assert len(modules) == 2
    assert structure(modules[0]) == structure(modules[1])
    graphs = NestedGraphs()
    assert graphs.graph_of(modules[0]) is graphs.graph_of(modules[1])


def test_functions_with_other_numbers_differ():
    graph = trace(branches, torch.tensor(True), X)
    true, false = (module for _, module in graph.named_children())
    assert structure(true) != structure(false)


def test_a_script_names_what_it_cannot_write():
    with pytest.raises(fi.errors.ReproError, match="graph inside"):
        script(fi.lower(trace(branches, torch.tensor(True), X)))


@pytest.mark.parametrize("name", ["host", "kernels"])
def test_generated_code_is_shown(name):
    assert getattr(fi.lower(trace(recurrent, X, XS, W)), name) is not None
