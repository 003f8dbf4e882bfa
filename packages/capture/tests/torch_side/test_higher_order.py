"""Control flow as nodes: what the graphs look like, what is refused, and that a refusal leaves nothing behind."""

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
