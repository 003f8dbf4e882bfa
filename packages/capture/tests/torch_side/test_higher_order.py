"""Control flow as nodes: what the graphs look like, what is refused, and that a refusal leaves nothing behind."""

import collections
import functools
import itertools

import pytest
import torch
from torch._higher_order_ops import associative_scan, scan, while_loop
from torch._higher_order_ops import map as map_

import fxstack_capture as fx

X = torch.tensor([1.0, 2.0])
W = torch.tensor([3.0, 4.0])


def captured(fn, *args):
    return fx.capture(fn, *args).graph_module


def test_a_branch_takes_what_it_closes_over_as_operand():
    def fn(x):
        y = x * 2
        return torch.cond(x.sum() > 0, lambda a: a + y, lambda a: a - W, (x,))

    module = captured(fn, X)
    (node,) = (n for n in module.graph.nodes if n.target is torch.ops.higher_order.cond)
    operands = [operand.name for operand in node.args[3]]
    assert len(operands) == 3 and operands[1] == "y" or "mul" in operands[1]
    inner = module.get_submodule(node.args[1].target)
    assert len(inner.graph.find_nodes(op="placeholder")) == 3


def test_graphs_hold_the_graphs_of_inner_control_flow():
    def fn(x):
        inner = lambda a: torch.cond(a.mean() > 1, torch.sin, torch.cos, (a,))
        return torch.cond(x.sum() > 0, inner, torch.exp, (x,))

    module = captured(fn, X)
    assert any(name.count(".") == 1 for name, _ in module.named_modules())
    assert torch.equal(module(X)[0], fn_plain(X))


def fn_plain(x):
    return (x.sin() if x.mean() > 1 else x.cos()) if x.sum() > 0 else x.exp()


def appends(seen):
    return lambda a: seen.append(1) or a * 2


def local_list(x):
    return torch.cond(x.sum() > 0, appends([]), torch.sin, (x,))


KEPT = []


def global_list(x):
    return torch.cond(x.sum() > 0, appends(KEPT), torch.sin, (x,))


def global_list_again(x):
    KEPT.append(0)
    return torch.cond(x.sum() > 0, writes_last, torch.sin, (x,))


def writes_last(a):
    KEPT[-1] = 1
    return a * 2


def sets_grad_mode(x):
    return torch.cond(x.sum() > 0, lambda a: torch.set_grad_enabled(False) or a * 2, torch.sin, (x,))


@pytest.mark.parametrize(
    ("fn", "why"),
    [
        (local_list, "changes an object that the compiled function has made"),
        (global_list, "which changes globals of"),
        (global_list_again, "which changes globals of"),
        (
            lambda x: torch.cond(x.sum() > 0, lambda a: a.double(), torch.sin, (x,)),
            "result 0 has dtype torch.float64 in the true branch .* and torch.float32 in the false branch",
        ),
        (
            lambda x: torch.cond(x.sum() > 0, lambda a: a[None] * 1, torch.sin, (x,)),
            "result 0 has number of dimensions 2 in the true branch .* and 1 in the false branch",
        ),
        (
            lambda x: torch.cond(x.sum() > 0, lambda a: (a * 1, 3), lambda a: (a * 2, 3.5), (x,)),
            "result 1 has class int in the true branch .* and float in the false branch ",
        ),
        (lambda x: torch.cond(x.sum() > 0, lambda a: {"a": a}, lambda a: [a], (x,)), "other structures"),
        (lambda x: torch.cond(x.sum() > 0, lambda a: "text", lambda a: "text", (x,)), "returns str"),
        (lambda x: while_loop(lambda a: a < 3, lambda a: (a + 1,), (x,)), r"a tensor of size \(2,\)"),
        (
            lambda x: while_loop(lambda n, a: n < 3, lambda n, a: (n + 1, a[:1]), (0, x)),
            r"carry 1 changes: size \(2,\) before the loop and \(1,\) after one iteration",
        ),
        (
            lambda x: while_loop(lambda n, a: n < 3, lambda n, a: (n + 0.5, a * 2), (0, x)),
            "carry 0 changes: class int before the loop and float after one iteration",
        ),
        (lambda x: while_loop(lambda n, a: n < 3, lambda n, a: (n + 1,), (0, x)), "returns 1 values for 2"),
        (lambda x: while_loop(lambda a: True, lambda a: (a + 1,), (x,)), "always true"),
        (
            lambda x: while_loop(lambda n, a: n < 3, lambda n, a: (n + 1, a.add_(1)), (0, x)),
            r"writes to a value that the loop carries \(.*test_higher_order.py:\d+ in <lambda>",
        ),
        (lambda x: scan(lambda c, a: (c + a, 3), x[0], x), "returns int as result 0, which must be a tensor"),
        (
            lambda x: torch.func.vmap(
                lambda a: torch.cond(a.sum() > 0, lambda b: W.add_(1) * b, torch.cos, (a,))
            )(x[None]),
            "under torch.func",
        ),
    ],
)
def test_what_a_function_must_not_do(fn, why):
    with pytest.raises(fx.Unsupported, match=why):
        captured(fn, X)
    assert KEPT == [] and torch.is_grad_enabled()


def nested_names(fn):
    return {name for name, _ in captured(fn, X).named_modules() if name}


def test_nested_graphs_have_torchs_names():
    def fn(x):
        inner = lambda a: torch.cond(a.sum() > 1, torch.sin, torch.cos, (a,))
        x = torch.cond(x.sum() > 0, inner, torch.exp, (x,)) + torch.cond(x.sum() > 3, inner, torch.exp, (x,))
        x = while_loop(lambda a: a.sum() < 3, lambda a: (a + 1,), (x,))[0]
        return map_(torch.sin, scan(lambda c, a: (c + a, c * 1), x[0], x)[1])

    pair = ("cond_true", "cond_false")
    outer = {f"{name}_{i}" for name in pair for i in range(2)}
    inner = {f"cond_true_{i}.{name}_0" for name in pair for i in range(2)}
    assert nested_names(fn) == {*outer, *inner, "cond_fn_0", "body_fn_0", "map_body_0", "scan_combine_fn_0"}


CACHE = torch.zeros(3, 2)


def written(x):
    def write(a):
        CACHE[1].copy_(a)
        return CACHE.sum(0)

    return torch.cond(x.sum() > 0, write, torch.sin, (x,)), CACHE * 2


def written_view(x):
    buffer = torch.zeros(2, 2)
    row = buffer[1]
    result = torch.cond(x.sum() > 0, lambda a: buffer.mul_(2) + row.add_(a), lambda a: a + buffer, (x,))
    return result, buffer


def written_in_a_loop(x):
    buffer = torch.zeros(3, 2)

    def body(n, a):
        buffer[n] = a
        return n + 1, a * 2

    return while_loop(lambda n, a: n < 2, body, (torch.tensor(0), x))[1], buffer


def written_slices(x):
    rows = torch.stack([x, x * 2])
    return map_(lambda a: a.add_(1) * 2, rows), rows


def summed(x):
    total = torch.zeros(2)
    return map_(lambda a: total.add_(a) * 1, torch.stack([x, x])), total


X2 = -X


@pytest.mark.parametrize(
    ("fn", "expected"),
    [
        (written, lambda x: (x, torch.stack([x * 0, x * 2, x * 0]))),
        (written_view, lambda x: (torch.stack([x, x * 2]), torch.stack([x * 0, x]))),
        (written_in_a_loop, lambda x: (x * 4, torch.stack([x, x * 2, x * 0]))),
        (written_slices, lambda x: (torch.stack([x + 1, x * 2 + 1]) * 2, torch.stack([x + 1, x * 2 + 1]))),
        (summed, lambda x: (torch.stack([x, x * 2]), x * 2)),
    ],
)
def test_functions_may_write_to_tensors_from_outside(fn, expected):
    CACHE.zero_()
    found = fx.optimize(fullgraph=True)(fn)(X)
    for mine, theirs in zip(found, expected(X), strict=True):
        torch.testing.assert_close(mine, theirs)


def numbers(x):
    result, n, none, same = torch.cond(
        x.sum() > 0, lambda a: (a * 2, 3, None, 1.5), lambda a: (a * 3, 5, None, 1.5), (x,)
    )
    return result + n + same, n, none, same


@pytest.mark.parametrize(
    ("fn", "expected"),
    [
        (numbers, lambda x: (x * 2 + 4.5, 3, None, 1.5) if x.sum() > 0 else (x * 3 + 6.5, 5, None, 1.5)),
        (lambda x: torch.cond(x.sum() > 0, lambda a: a[:1] * 2, torch.sin, (x,)) * 2, None),
        (
            lambda x: torch.cond(x.sum() > 0, lambda a: a, torch.sin, (x,)),
            lambda x: x if x.sum() > 0 else x.sin(),
        ),
        (lambda x: while_loop(lambda n, a: n < 3, lambda n, a: (n + 1, a * n), (1, x)), lambda x: (3, x * 2)),
        (
            lambda x: while_loop(lambda f, a: f < 2.0, lambda f, a: (f + 0.5, a * f), (1.0, x)),
            lambda x: (2.0, x * 1.5),
        ),
        (
            lambda x: while_loop(
                lambda s: s["n"] < 2, lambda s: ({"n": s["n"] + 1, "a": -s["a"]},), ({"n": 0, "a": x},)
            ),
            lambda x: ({"n": 2, "a": x},),
        ),
        (
            lambda x: while_loop(lambda n, a, b: n < 3, lambda n, a, b: (n + 1, b, a), (0, x, x * 2)),
            lambda x: (3, x * 2, x),
        ),
        (lambda x: scan(lambda c, a: (c + a, c), x[0], x)[1], lambda x: torch.stack([x[0], x[0] * 2])),
        (lambda x: map_(lambda a, k: a * k, x, 3), lambda x: x * 3),
    ],
)
@pytest.mark.parametrize("x", [X, X2])
def test_numbers_shared_memory_and_sizes(fn, expected, x):
    if expected is None:
        expected = lambda x: (x[:1] * 2 if x.sum() > 0 else x.sin()) * 2
    found = fx.optimize(fullgraph=True)(fn)(x)
    for mine, theirs in zip(
        torch.utils._pytree.tree_leaves(found), torch.utils._pytree.tree_leaves(expected(x)), strict=True
    ):
        assert torch.equal(mine, theirs) if isinstance(theirs, torch.Tensor) else mine == theirs


def chosen(cond, a):
    return cond(a.sum() > 0, lambda b: b.sin() * W, lambda b: b.cos() + 1, (a,))


def plain_cond(pred, yes, no, operands):
    return (yes if pred else no)(*operands)


def stepped(scanned, a):
    return scanned(lambda c, b: ((c * 0.5 + b).sin(), c * b), a[0], a)[1]


def plain_scan(step, carry, xs):
    outs = []
    for x in xs:
        carry, out = step(carry, x)
        outs.append(out)
    return carry, torch.stack(outs)


def counted(loop, a):
    return loop(lambda n, b: n < 3, lambda n, b: (n + 1, b * b * 0.5 + W), (torch.tensor(0), a))[1]


def until(loop, a):
    return loop(lambda b: b.abs().sum() < 100, lambda b: (b * 2 + W,), (a,))[0]


CALLS = {
    "cond": (chosen, torch.cond, plain_cond),
    "scan": (stepped, scan, plain_scan),
    "map": (
        lambda op, a: op(lambda b: b.sin() * W[0], a),
        map_,
        lambda f, xs: torch.stack([f(x) for x in xs]),
    ),
    "while": (counted, while_loop, lambda cond, body, carried: plain_loop(cond, body, carried)),
    "until": (until, while_loop, lambda cond, body, carried: plain_loop(cond, body, carried)),
}


def each(fn):
    return lambda rows: torch.stack([fn(row) for row in rows])


LAYERS = {
    "vmap": (torch.vmap, each, True),
    "grad": (lambda f: torch.func.grad(lambda x: f(x).sum()),) * 2 + (False,),
    "jvp": (lambda f: lambda x: torch.func.jvp(f, (x,), (x + 1,)),) * 2 + (False,),
    "vmap of grad": (
        lambda f: torch.vmap(torch.func.grad(lambda x: f(x).sum())),
        lambda f: each(torch.func.grad(lambda x: f(x).sum())),
        True,
    ),
}


@pytest.mark.parametrize("call", CALLS)
@pytest.mark.parametrize("layer", LAYERS)
def test_operators_under_transforms_are_part_of_the_graph(call, layer):
    if "grad" in layer and call in ("while", "until"):
        pytest.skip("the gradient of a loop by a transform runs in plain Python")
    fn, operator, plain = CALLS[call]
    apply, apply_plain, is_batched = LAYERS[layer]
    pair = torch.stack([X2, X])
    x = torch.stack([pair, pair - 9, pair * 3]) if is_batched else pair
    found = fx.optimize(fullgraph=True)(apply(lambda a: fn(operator, a)))(x)
    expected = apply_plain(lambda a: fn(plain, a))(x)
    torch.testing.assert_close(found, expected)


def test_a_branch_may_write_to_what_it_made():
    module = captured(lambda x: torch.cond(x.sum() > 0, lambda a: a.cos().add_(1), torch.sin, (x,)), X)
    assert torch.equal(module(X)[0], X.cos() + 1)


def test_guards_of_branches_are_kept():
    table = {"k": 2.0}
    fn = fx.optimize(fullgraph=True)(
        lambda x: torch.cond(x.sum() > 0, lambda a: a * table["k"], torch.sin, (x,))
    )
    assert torch.equal(fn(X), X * 2)
    table["k"] = 5.0
    assert torch.equal(fn(X), X * 5)


CALLERS = {
    "reduce": lambda step, x: functools.reduce(step, range(3), x),
    "accumulate": lambda step, x: sum(itertools.accumulate([x, 1, 2], step)),
    "map": lambda step, x: sum(map(step, [x, x * 2], range(2))),
    "map alone": lambda step, x: list(map(lambda a: step(a, 1), [x, x]))[1],
    "starmap": lambda step, x: sum(itertools.starmap(step, [(x, 1), (x, 2)])),
    "sorted": lambda step, x: sorted([(1, x), (0, x)], key=lambda pair: (pair[0], step(pair[1], 1))[0])[0][1],
    "max": lambda step, x: step(max([x, x * 2], key=lambda a: a.dim() + step(a, 1).dim()), 1),
    "generator": lambda step, x: sum(step(x, k) for k in range(2)),
    "partial": lambda step, x: functools.reduce(functools.partial(step), [x, 1, 2]),
    "deque": lambda step, x: sum(collections.deque(map(step, [x], [1]), 2)),
    "dict": lambda step, x: {k: v for k, v in enumerate(map(step, [x], [1]))}[0],
    "filter": lambda step, x: sum(filter(lambda a: step(a, 1).dim() > 0, [x, x])),
}


def steps(cond, loop, mapped):
    first = lambda x, k: cond(x.sum() > 0, lambda a: a * 2 + k, lambda a: a - W, (x,))
    return {
        "cond": first,
        "nested": lambda x, k: cond(
            x.sum() > 0, lambda a: functools.reduce(first, range(2), a), lambda a: a - k, (x,)
        ),
        "while": lambda x, k: loop(
            lambda i, a: i < 2 + k, lambda i, a: (i + 1, a * 2), (torch.tensor(0), x.detach())
        )[1],
        "map": lambda x, k: mapped(lambda row: row * k + 1, x),
    }


def plain_loop(cond, body, carried):
    while cond(*carried):
        carried = body(*carried)
    return carried


STEPS = steps(torch.cond, while_loop, map_)
PLAIN = steps(
    lambda pred, yes, no, operands: (yes if pred else no)(*operands),
    plain_loop,
    lambda body, x: torch.stack([body(row) for row in x]),
)


@pytest.mark.parametrize("requires_grad", [False, True])
@pytest.mark.parametrize(("caller", "step"), list(itertools.product(CALLERS, STEPS))[::5])
def test_operators_below_c_code_are_part_of_the_graph(caller, step, requires_grad):
    def fn(x):
        return CALLERS[caller](STEPS[step], x)

    def plain(x):
        return CALLERS[caller](PLAIN[step], x)

    def run(called):
        x = X.clone().requires_grad_(requires_grad)
        out = called(x)
        return [out, *(torch.autograd.grad(out.sum(), x) if out.requires_grad else ())]

    graphs = []
    compiled = fx.optimize(lambda graph, _: graphs.append(graph) or graph.forward, fullgraph=True)(fn)
    found = run(compiled)
    assert all(map(torch.equal, found, run(plain)))
    assert len(graphs) == 1


def test_nodes_of_nested_graphs_have_the_names_of_their_attributes():
    def branch(a):
        return torch.cond(a.max() > 0, lambda b: b * 2, lambda b: b * 3, (a,))

    def program(x):
        for _ in range(2):
            x = torch.cond(x.sum() > 0, branch, branch, (x,))
        return x

    graph = fx.capture(program, torch.ones(3)).graph_module
    modules = [m for m in graph.modules() if isinstance(m, torch.fx.GraphModule)]
    nodes = [node for module in modules for node in module.graph.find_nodes(op="get_attr")]
    assert len(nodes) == 12
    assert [node.name for node in nodes] == [node.target for node in nodes]


def test_a_scan_in_halves_has_the_size_of_its_operand():
    def fn(x):
        return associative_scan(torch.maximum, x * 1, 0, combine_mode="generic")

    graphs = []
    backend = lambda graph, _: graphs.append(graph) or graph
    fx.optimize(backend=backend, dynamic=True)(fn)(torch.arange(3))
    (module,) = graphs
    (result,), (size_of_input, *_) = (
        module.graph.output_node().args[0],
        module.graph.find_nodes(op="placeholder"),
    )
    assert str(result.meta["val"].shape) == str(size_of_input.meta["val"].shape)
    assert "s" in str(result.meta["val"].shape[0])
