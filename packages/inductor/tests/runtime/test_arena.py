"""Memory of intermediate tensors where sizes change: places are kept while they are large enough, and results are eager's."""

from dataclasses import replace

import pytest
import torch
from inductor_checks import FAST, check

from fxstack_inductor.ir.bounds import VarKind
from fxstack_inductor.ir.expr import ONE, ZERO, Var, floordiv, integer, of_atom
from fxstack_inductor.ir.nodes import Layout
from fxstack_inductor.runtime.arena import Pool, Sizes, Window, Workspace
from fxstack_inductor.schedule.memory import Slot

W = torch.randn(8, 8)
N = of_atom(Var("n", VarKind.SIZE))


def products(x, w):
    for _ in range(3):
        x = torch.relu(x @ w) + x
    return x.sum(0)


def test_sizes_in_any_order_compute_what_eager_does():
    later = [(torch.randn(n, 8), W) for n in (6, 7, 40, 41, 3, 44, 45, 46, 200, 2, 46)]
    check(products, torch.randn(5, 8), W, symbolic=True, options=FAST, others=later)


def slot(name, first, last):
    layout = Layout((N,), (ONE,), torch.float32, torch.device("cpu"))
    return Slot(name, layout, N, first, last)


def workspace():
    """Two tensors of ``n`` floats that live at the same time."""
    windows = [Window(k, (N,), (ONE,), ZERO) for k in range(2)]
    return Workspace([slot("a", 0, 2), slot("b", 1, 3)], windows, ["n"], Pool())


def addresses(space, size):
    """Where both tensors are; they have ``size`` elements, and none is in both."""
    block, first, second, a, b = space.take(size)
    assert a.shape == b.shape == (size,)
    assert (a.data_ptr(), b.data_ptr()) == (first, second) or not size
    assert abs(first - second) >= 4 * size
    assert max(first, second) + 4 * size <= block.memory.data_ptr() + block.memory.numel()
    space.give(block)
    return first, second


def test_the_first_size_gets_what_it_needs():
    space = workspace()
    addresses(space, 4096)
    assert space.latest.total == 2 * 4096 * 4


def test_growing_sizes_keep_their_places_while_these_suffice():
    space = workspace()
    addresses(space, 4000)
    grown = {addresses(space, size) for size in range(4001, 4401)}
    assert len(grown) == 1


def test_sizes_that_come_back_are_placed_once(monkeypatch):
    space = workspace()
    for size in (8, 900):
        addresses(space, size)
    monkeypatch.delattr(Workspace, "_placed")
    for size in (8, 900, 8):
        addresses(space, size)


def test_all_sizes_fit_whatever_came_before():
    space = workspace()
    for size in (10, 11, 0, 5000, 20, 5001, 40_000, 1, 5000, 10):
        addresses(space, size)


def test_expressions_are_evaluated_as_one_by_one():
    m = of_atom(Var("m", VarKind.SIZE))
    exprs = [N, N * m, integer(3), floordiv(N, integer(2)), N, N * m + 1]
    found = Sizes(["n", "m"], exprs)
    for n, k in ((0, 0), (7, 3), (8, 1)):
        assert found((n, k)) == [e.evaluate({"n": n, "m": k}) for e in exprs]
    assert len(found.different) == 5


@pytest.mark.parametrize("host", ["native", "python"])
def test_a_view_may_name_sizes_that_its_memory_does_not_have(host):
    def spread(x):
        return torch.sort(x.sum().expand(x.shape[0]))[1] + 1

    others = [(torch.randn(3, 7),)]
    check(spread, torch.randn(5, 7), symbolic=True, options=replace(FAST, host=host), others=others)
