"""What is taken out of a graph, and what must stay in it."""

import pytest
import torch
from inductor_checks import trace

from fxstack_inductor.freezing.constants import constant_nodes, split
from fxstack_inductor.freezing.frozen import MOST_MISSES, freeze
from fxstack_inductor.freezing.norms import fold_norms
from fxstack_inductor.freezing.packing import available, pack_products


def graph_of(fn, *inputs, state):
    """The graph of ``fn``, whose last ``state`` arguments are a module's."""
    graph = trace(fn, *inputs)
    for node in graph.graph.find_nodes(op="placeholder")[-state:]:
        node.target = f"l_self_buffers_{node.name}"
    return graph


def targets(module):
    return [str(node.target) for node in module.graph.nodes if node.op == "call_function"]


def parts(fn, *inputs, state=1):
    return split(graph_of(fn, *inputs, state=state))


X, W = torch.randn(4, 8), torch.randn(8, 8)


def runs_as(fn, *inputs, state=1):
    """The two parts together compute what ``fn`` does."""
    made = parts(fn, *inputs, state=state)
    folded = made.constants(*(inputs[k] for k in made.state))
    got = made.rest(*(inputs[k] for k in made.kept), *folded)
    torch.testing.assert_close(got, fn(*inputs))
    return made


def test_what_follows_from_state_is_taken_out():
    made = runs_as(lambda x, w: x @ (w * 2).exp().t(), X, W)
    assert targets(made.constants) == ["aten.mul.Tensor", "aten.exp.default", "aten.t.default"]
    assert targets(made.rest) == ["aten.mm.default"]
    assert (made.state, made.kept) == ((1,), (0,))


def test_state_that_the_rest_reads_too_is_passed_on():
    assert runs_as(lambda x, w: x @ w.exp() + w[0], X, W).kept == (0,)
    assert runs_as(lambda x, w: (x @ w.exp(), w * 1), X, W).kept == (0, 1)


@pytest.mark.parametrize(
    "fn",
    [
        lambda x, w: x @ w.t(),  # a view costs nothing
        lambda x, w: (x, w * 2),  # a result is new in each call
        lambda x, w: (x, (w * 2)[1:]),  # and so is what it is a view of
        lambda x, w: x + torch.rand(8),
        lambda x, w: x @ w.to(torch.float64).to(torch.float32) if w.dtype is torch.int8 else x,
    ],
)
def test_nothing_to_take_out(fn):
    assert parts(fn, X, W) is None


def test_what_takes_more_memory_than_state_is_computed_in_each_call():
    quantised = torch.randint(-128, 128, (8, 8), dtype=torch.int8)
    assert parts(lambda x, w: x @ (w.float() * 0.5), X, quantised) is None


def test_random_numbers_and_written_state_are_not_constant():
    graph = graph_of(lambda x, w: x @ torch.bernoulli(w) + w.exp()[0], X, W.sigmoid(), state=1)
    known = {str(node.target) for node in constant_nodes(graph)}
    assert "aten.exp.default" in known
    assert "aten.bernoulli.default" not in known


def test_tensors_without_versions_are_not_frozen():
    def fn(x, w):
        return (x @ w.exp(),)

    made = freeze(graph_of(fn, X, W, state=1), lambda graph: graph.forward)
    with torch.inference_mode():
        for weight in (torch.randn(8, 8), torch.randn(8, 8)):
            torch.testing.assert_close(made(X, weight), fn(X, weight))
    assert made.folded is None


def test_weights_that_change_in_each_call_are_arguments():
    def fn(x, w):
        return (x @ w.exp(),)

    made = freeze(graph_of(fn, X, W, state=1), lambda graph: graph.forward)
    kept = [torch.randn(8, 8) for _ in range(MOST_MISSES + 2)]
    for weight in kept:
        torch.testing.assert_close(made(X, weight), fn(X, weight))
    assert made.folded is None
    assert len(made.unfrozen) == 1


def norm(x, w, b, gamma, beta, mean, variance):
    y = torch.conv2d(x, w, b, padding=1)
    return torch.native_batch_norm(y, gamma, beta, mean, variance, False, 0.1, 1e-5)[0]


VECTORS = [torch.rand(6) + 0.5 for _ in range(5)]


@pytest.mark.parametrize("missing", [(), (2,), (3, 4), (2, 3, 4)])
def test_batch_norms_become_part_of_convolutions(missing):
    inputs = [torch.randn(2, 3, 5, 5), torch.randn(6, 3, 3, 3), *VECTORS]
    given = [k for k in range(7) if k not in missing]

    def fn(*args):
        every = dict(zip(given, args, strict=True))
        return norm(*(every.get(k) for k in range(7)))

    args = [inputs[k] for k in given]
    graph = graph_of(fn, *args, state=len(args) - 1)
    fold_norms(graph.graph, constant_nodes(graph))
    assert not any("norm" in name for name in targets(graph))
    graph.recompile()
    torch.testing.assert_close(graph(*args), fn(*args), rtol=1e-4, atol=1e-4)


def test_a_norm_that_trains_keeps_its_statistics_out():
    def fn(x, w, mean, variance):
        y = torch.conv2d(x, w)
        return torch.native_batch_norm(y, None, None, mean, variance, True, 0.1, 1e-5)[0]

    graph = graph_of(fn, torch.randn(2, 3, 5, 5), torch.randn(6, 3, 1, 1), *VECTORS[:2], state=3)
    before = targets(graph)
    fold_norms(graph.graph, constant_nodes(graph))
    assert targets(graph) == before


@pytest.mark.skipif(not available(), reason="this torch has no oneDNN")
def test_products_are_packed_where_that_is_faster(monkeypatch):
    packing = "fxstack_inductor.freezing.packing"
    monkeypatch.setattr(f"{packing}.faster", lambda *_: True)
    monkeypatch.setattr(f"{packing}.MIN_ELEMENTS", 0)

    def fn(x, w, b):
        return torch.addmm(b, x, w.t()) + x @ w

    inputs = (X, W, torch.randn(8))
    graph = graph_of(fn, *inputs, state=2)
    pack_products(graph.graph, constant_nodes(graph))
    made = split(graph)
    assert targets(made.rest).count("mkldnn._linear_pointwise.default") == 2
    folded = made.constants(*(inputs[k] for k in made.state))
    got = made.rest(*(inputs[k] for k in made.kept), *folded)
    torch.testing.assert_close(got, fn(*inputs))
