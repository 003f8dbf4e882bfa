"""Control flow as nodes: what the graphs look like, what is refused, and that a refusal leaves nothing behind."""

import collections
import functools
import itertools

import pytest
import torch
from torch._higher_order_ops import map as map_
from torch._higher_order_ops import while_loop

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
        (local_list, "changes what was there before"),
        (global_list, "changes what was there before"),
        (global_list_again, "changes what was there before"),
        (lambda x: torch.cond(x.sum() > 0, lambda a: a.add_(1) * 2, torch.sin, (x,)), "writes to a tensor"),
        (lambda x: torch.cond(x.sum() > 0, lambda a: a, torch.sin, (x,)), "returns memory of its inputs"),
        (lambda x: torch.cond(x.sum() > 0, lambda a: a[:1] * 1, torch.sin, (x,)), "different kinds"),
        (lambda x: torch.cond(x.sum() > 0, lambda a: 3, lambda a: 4, (x,)), "not return tensors alone"),
        (lambda x: map_(lambda a: a.view(-1), x[None]), "returns memory of its inputs"),
        (lambda x: while_loop(lambda a: a < 3, lambda a: (a + 1,), (x,)), "condition is not one value"),
        (
            lambda x: torch.func.vmap(lambda a: torch.cond(a.sum() > 0, torch.sin, torch.cos, (a,)))(x[None]),
            "transform",
        ),
    ],
)
def test_what_a_function_must_not_do(fn, why):
    with pytest.raises(fx.Unsupported, match=why):
        captured(fn, X)
    assert KEPT == [] and torch.is_grad_enabled()


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
