"""Operators that call functions (branches, loops): compiled, with the results of torch's operators."""

import json
import operator

import pytest
import torch
from inductor_checks import FAST, assert_equal, copies
from torch.fx import Graph, GraphModule
from torch.fx.experimental.proxy_tensor import make_fx

import fxstack_inductor as fi
from fxstack_inductor.compiled_store import ProgramCache
from fxstack_inductor.lower.nested.calls import NestedCall
from fxstack_inductor.lower.nested.graphs import NestedGraphs, structure
from fxstack_inductor.repro.script import script
from fxstack_inductor.schedule.steps import all_bodies
from fxstack_inductor.targets.c.profile import profile_steps

OPS = torch.ops.higher_order
X, XS, W = torch.randn(4), torch.randn(5, 4), torch.randn(4, 4)
ROWS = torch.randn(3, 4)


def trace(fn, *inputs, symbolic=False):
    return make_fx(fn, tracing_mode="symbolic" if symbolic else "fake")(*inputs)


def check(fn, *inputs, symbolic=False, others=(), **options):
    """Compile ``fn`` and compare with the graph that torch runs; return the callable."""
    graph = trace(fn, *inputs, symbolic=symbolic)
    return check_graph(graph, inputs, *others, **options)


def check_graph(graph, *several, **options):
    """Compile ``graph`` and compare on each tuple of inputs; inputs must not change."""
    chosen = fi.InductorOptions(optimization=1, use_cache=False, raise_failures=True, **options)
    compiled = fi.compile_graph(graph, several[0], chosen)
    for inputs in several:
        args = copies(inputs)
        assert_equal(compiled(*args), graph(*copies(inputs)))
        assert_equal(args, inputs)
    return compiled


def loops(compiled):
    """The kinds of the loops and branches of the host program."""
    return [step.form.kind for step in compiled.lowered.plan.steps if isinstance(step, NestedCall)]


def zero():
    return torch.zeros((), dtype=torch.int64)


def while_loop(holds, body, *carries, shared=()):
    return OPS.while_loop(holds, body, carries, shared)


def scan(fn, init, xs, shared=()):
    return OPS.scan(fn, list(init), list(xs), tuple(shared))


def counted(x, n):
    return while_loop(lambda i, x: i < n, lambda i, x: (i + 1, (x * 2).sin()), zero(), x)


def until_small(x):
    return while_loop(lambda x: x.abs().max() > 0.1, lambda x: (x * 0.7,), x)


def branches(p, x):
    return OPS.cond(p, lambda x: (x.sin() + 1,), lambda x: (x.cos() * 2,), (x,))


def recurrent(x, xs, w):
    return scan(lambda c, x, w: ((c @ w + x).tanh(), (c * x).exp()), [x], [xs], [w])


def products(x, xs, w):
    return scan(lambda c, x, w: (c @ w, c + x), [x], [xs], [w])


def mapped(xs, w):
    return OPS.map_impl(lambda x, w: ((w @ x).relu(), x.sum()), [xs], [w])


def loop_in_loop(x, xs):
    def step(c, x):
        _, c = while_loop(lambda i, c: i < 3, lambda i, c: (i + 1, c * 0.5 + i), zero(), c * x)
        return c + 1, c.sum()

    return scan(step, [x], [xs])


def branch_in_loop(x, xs):
    step = lambda c, x: (branches(x.sum() > 0, c)[0], c * x)
    return scan(step, [x], [xs])


def swapped(x, y):
    body = lambda i, x, y: (i + 1, y.clone(), x.clone())
    return while_loop(lambda i, x, y: i < 3, body, zero(), x, y)


def unchanged(x, xs):
    return scan(lambda a, b, x: (a.clone(), b * x, a.clone(), x.clone()), [x, x + 1], [xs])


def transposed(x, xs):
    return scan(lambda c, x: (c.t().contiguous() + x, c.t().clone()), [x], [xs])


def sorted_rows(x, xs):
    return scan(lambda c, x: (c.sort(0)[0] + x, c.argsort(0)), [x], [xs])


def gathered(x, xs, i):
    return scan(lambda c, x, i: (c[i] + x, x.index_select(0, i)), [x], [xs], [i])


CALLS = {
    "counted": (lambda x: counted(x, 7), (X,)),
    "no iteration": (lambda x: counted(x, 0), (X,)),
    "one iteration": (lambda x: counted(x, 1), (X,)),
    "until small": (until_small, (X,)),
    "true branch": (branches, (torch.tensor(True), X)),
    "false branch": (branches, (torch.tensor(False), X)),
    "recurrent": (recurrent, (ROWS, torch.randn(5, 3, 4), W)),
    "one slice": (recurrent, (ROWS, torch.randn(1, 3, 4), W)),
    "products": (products, (ROWS, torch.randn(6, 3, 4), W)),
    "mapped": (mapped, (XS, W)),
    "loop in loop": (loop_in_loop, (X, XS)),
    "branch in loop": (branch_in_loop, (X, XS)),
    "swapped": (swapped, (X, X + 1)),
    "unchanged": (unchanged, (X, XS)),
    "transposed": (transposed, (W, torch.randn(5, 4, 4))),
    "an operator of ATen": (sorted_rows, (X, XS)),
    "indices": (gathered, (X, XS, torch.tensor([3, 0, 2, 2]))),
    "strided slices": (lambda x, xs, w: recurrent(x, xs.transpose(0, 1), w), (ROWS, torch.randn(3, 5, 4), W)),
    "views": (lambda x: counted(x[1:, 0], 3), (ROWS,)),
    "empty tensors": (lambda x: counted(x[:0], 3), (X,)),
    "twice": (lambda x: (*counted(x, 2), *counted(x + 1, 2)), (X,)),
    "a result that is read": (lambda x: (counted(x, 2)[1] * 2, x), (X,)),
}


@pytest.mark.parametrize("host", ["native", "python"])
@pytest.mark.parametrize("name", CALLS)
def test_results_are_torch_s(name, host):
    fn, inputs = CALLS[name]
    compiled = check(fn, *inputs, host=host)
    assert bool(loops(compiled)) == (host == "native")


@pytest.mark.parametrize(
    "name", ["counted", "no iteration", "true branch", "recurrent", "mapped", "loop in loop"]
)
def test_kernels_of_triton_in_functions(name):
    pytest.importorskip("triton")
    fn, inputs = CALLS[name]
    check(fn, *inputs, target="cuda")


@pytest.mark.parametrize(
    "dtype", [torch.float64, torch.bfloat16, torch.float16, torch.int32, torch.uint8, torch.bool]
)
def test_dtypes_of_carries_and_slices(dtype):
    x, xs = (torch.randint(0, 2, shape).to(dtype) for shape in ((4,), (5, 4)))
    assert loops(
        check(
            lambda x, xs: scan(lambda c, x: (c | x if dtype is torch.bool else c + x, c.clone()), [x], [xs]),
            x,
            xs,
        )
    )


def test_complex_carries_keep_the_operator():
    x = torch.randn(4, dtype=torch.complex64)
    assert not loops(check(lambda x: counted(x, 3), x))


def test_both_branches_of_one_program():
    check(branches, torch.tensor(True), X, others=[(torch.tensor(False), X)])


@pytest.mark.parametrize("host", ["native", "python"])
def test_a_length_that_changes(host):
    others = [(ROWS, torch.randn(n, 3, 4), W) for n in (9, 1, 2)]
    check(recurrent, ROWS, torch.randn(5, 3, 4), W, symbolic=True, others=others, host=host)


def test_sizes_that_change():
    others = [(torch.randn(n), torch.randn(m, n)) for n, m in ((9, 3), (2, 8))]
    check(loop_in_loop, X, XS, symbolic=True, others=others)


@pytest.mark.parametrize("host", ["native", "python"])
def test_numbers_as_carries(host):
    def loop(x):
        return while_loop(lambda i, x: i < x.shape[0], lambda i, x: (i + 1, x * 2), 0, x)

    check(loop, X, symbolic=True, host=host)


def counted_by_item(x, start, n):
    def body(i, x):
        number = i.item()
        return torch.scalar_tensor(number + 1, dtype=torch.int64), x * 0.5 + number

    def holds(i, x):
        number = i.item()
        return torch.scalar_tensor(torch.sym_ite(number < start + n, 1, 0), dtype=torch.bool)

    return while_loop(holds, body, torch.full((), start), x)


@pytest.mark.parametrize("start", [0, -3, 2**53, -(2**62), 2**63 - 9])
def test_numbers_that_a_loop_reads_and_writes(start):
    graph = trace(lambda x: counted_by_item(x, start, 5), X, symbolic=True)
    check_graph(graph, (X,), host="native")


def test_a_number_beyond_64_bits_is_an_error_in_a_loop():
    graph = trace(lambda x: counted_by_item(x, 0, 5), X, symbolic=True)
    text = fi.compile_graph(graph, (), FAST).lowered.text
    assert "PyEval_RestoreThread" in text[text.index("int nested_") : text.index("fxstack_call(")]

    def body(i, x):
        return torch.scalar_tensor(i.item() * 2**20, dtype=torch.int64), x + 1

    graph = trace(
        lambda x, i: while_loop(lambda i, x: x.sum() < 100, body, i, x), X, torch.tensor(1), symbolic=True
    )
    with pytest.raises(OverflowError):
        fi.compile_graph(graph, (), FAST)(torch.zeros(4), torch.tensor(3))


def test_random_numbers_are_eager_s():
    graph = trace(
        lambda x, xs: scan(lambda c, x: (c + torch.bernoulli(x.sigmoid()), c * 2), [x], [xs]), X, XS
    )
    compiled = fi.compile_graph(graph, (X, XS), FAST)
    results = []
    for call in (compiled, graph):
        torch.manual_seed(1)
        results.append(call(X, XS))
    assert_equal(*results)


def test_a_stored_program_runs_its_functions():
    for host in ("native", "python"):
        options = fi.InductorOptions(optimization=1, use_cache=False, host=host)
        graph, inputs = trace(loop_in_loop, X, XS), (X, XS)
        cache = ProgramCache(options)
        record = json.loads(json.dumps(cache.pack(fi.compile_graph(graph, inputs, options))))
        assert_equal(cache.unpack(record, lambda graph=graph: graph)(*inputs), graph(*inputs))


@pytest.mark.parametrize("host", ["native", "python"])
@pytest.mark.parametrize("boxed", [True, False])
def test_an_index_out_of_range_in_a_function_raises_eager_s_error(host, boxed):
    graph = trace(gathered, X, XS, torch.tensor([1, 2, 3, 0]))
    options = fi.InductorOptions(optimization=1, use_cache=False, host=host)
    compiled = fi.compile_graph(graph, (), options, boxed=boxed)
    run = (lambda *args: compiled(list(args))) if boxed else compiled
    for indices in ([1, 2, 3, 4], [-5, 0, 0, 0]):
        with pytest.raises((IndexError, RuntimeError), match="out of range|out of bounds"):
            run(X, XS, torch.tensor(indices))
    good = torch.tensor([3, 0, 1, 1])
    assert_equal(run(X, XS, good), graph(X, XS, good))


def test_an_error_of_an_operator_in_a_function_is_eager_s():
    graph = trace(
        lambda x, xs: scan(lambda c, x: (torch.linalg.cholesky(c).contiguous() + x, x * 2), [x], [xs]),
        W @ W.t() + 4 * torch.eye(4),
        torch.zeros(3, 4, 4),
    )
    compiled = fi.compile_graph(graph, (), FAST)
    with pytest.raises(torch.linalg.LinAlgError):
        compiled(-torch.eye(4), torch.zeros(3, 4, 4))


def region(fn, *inputs, calls=3):
    """A graph that calls one function of several results ``calls`` times, on its first result."""
    body = make_fx(fn, tracing_mode="fake")(*inputs)
    holder, graph = torch.nn.Module(), Graph()
    holder.subgraph_0 = body
    placeholders = body.graph.find_nodes(op="placeholder")
    nodes = []
    for position, each in enumerate(placeholders):
        nodes.append(graph.placeholder(f"x{position}"))
        nodes[-1].meta["val"] = each.meta["val"]
    values = [node.meta["val"] for node in body.graph.find_nodes(op="output")[0].args[0]]
    results = []
    for _ in range(calls):
        function = graph.get_attr("subgraph_0")
        call = graph.call_function(OPS.invoke_subgraph, (function, "subgraph_0", *nodes))
        call.meta["val"] = tuple(values)
        found = [graph.call_function(operator.getitem, (call, k)) for k in range(len(values))]
        for each, value in zip(found, values, strict=True):
            each.meta["val"] = value
        nodes[0] = found[0]
        results += found
    graph.output(tuple(results))
    return GraphModule(holder, graph)


REGIONS = {
    "layer": lambda x, w: ((x @ w).relu() * 2, x.exp()),
    "an operand": lambda x, w: (x @ w, w),
    "views": lambda x, w: (x @ w, (x + 1).t(), (x * 2)[1:], x[0]),
    "one result twice": lambda x, w: (y := x @ w + 1, y),
    "results of ATen": lambda x, w: (x @ w, *x.sort(1)),
}


@pytest.mark.parametrize("host", ["native", "python"])
@pytest.mark.parametrize("name", REGIONS)
def test_regions(name, host):
    graph = region(REGIONS[name], ROWS, W)
    compiled = check_graph(graph, (ROWS, W), host=host)
    assert len(all_bodies(compiled.lowered.plan)) == (host == "native")


@pytest.mark.parametrize("host", ["native", "python"])
def test_a_region_shares_memory_as_eager_does(host):
    graph = region(lambda x, w: (x @ w, w, (x + 1).t(), w.t()[1:]), ROWS, W, calls=1)
    options = fi.InductorOptions(optimization=1, use_cache=False, host=host)
    _, operand, _, view = fi.compile_graph(graph, (), options)(ROWS, W)
    assert operand.data_ptr() == W.data_ptr()
    assert view.data_ptr() == W.t()[1:].data_ptr()


def test_a_profiled_region_runs():
    graph = region(REGIONS["views"], ROWS, W)
    results = profile_steps(fi.lower(graph), boxed=False).run(ROWS, W)
    assert_equal(results, graph(ROWS, W))


def test_equal_functions_are_one():
    graph = trace(
        lambda x, xs, w: (*recurrent(x, xs, w), *recurrent(x + 1, xs, w)), ROWS, torch.randn(5, 3, 4), W
    )
    modules = [module for _, module in graph.named_children()]
    assert len(modules) == 2
    assert structure(modules[0]) == structure(modules[1])
    graphs = NestedGraphs()
    assert graphs.graph_of(modules[0]) is graphs.graph_of(modules[1])
    compiled = fi.compile_graph(graph, (), FAST)
    assert len(all_bodies(compiled.lowered.plan)) == 1


def test_functions_with_other_numbers_differ():
    graph = trace(branches, torch.tensor(True), X)
    true, false = (module for _, module in graph.named_children())
    assert structure(true) != structure(false)


def test_dead_code_of_a_function_does_not_run():
    graph = trace(lambda x, xs: scan(lambda c, x: (c + x, (c.sort()[0], x * 2)[1]), [x], [xs]), X, XS)
    (body,) = all_bodies(fi.compile_graph(graph, (), FAST).lowered.plan)
    assert not [step for step in body.plan.steps if "sort" in str(getattr(step, "target", ""))]


def test_an_iteration_allocates_nothing():
    text = fi.compile_graph(trace(products, ROWS, torch.randn(5, 3, 4), W), (), FAST).lowered.text
    function = text[text.index("int nested_") : text.index("fxstack_call(")]
    assert "fx_empty" not in function
    assert "PyEval" not in function


def test_a_loop_can_be_interrupted():
    import _thread
    import threading

    compiled = check(until_small, X)
    timer = threading.Timer(0.5, _thread.interrupt_main)
    timer.start()
    with pytest.raises(KeyboardInterrupt):
        compiled(torch.full((4,), float("inf")))


def test_steps_are_timed():
    lowered = fi.lower(trace(recurrent, ROWS, torch.randn(5, 3, 4), W))
    profiled = profile_steps(lowered, boxed=False)
    profiled.run(ROWS, torch.randn(5, 3, 4), W)
    assert profiled.seconds["scan"] > 0


def test_a_script_names_what_it_cannot_write():
    with pytest.raises(fi.errors.ReproError, match="graph inside"):
        script(fi.lower(trace(branches, torch.tensor(True), X)))


@pytest.mark.parametrize("name", ["host", "kernels"])
def test_generated_code_is_shown(name):
    shown = getattr(fi.lower(trace(recurrent, ROWS, torch.randn(5, 3, 4), W)), name)
    assert ("run_scan" if name == "host" else "kernel_0") in shown
