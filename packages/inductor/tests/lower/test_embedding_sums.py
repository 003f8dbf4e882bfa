"""Gradients of one embedding in a sum become one gradient, with eager's numbers in Triton's interpreter."""

import pytest
import torch
from inductor_checks import TABLE, assert_equal
from torch.fx.experimental.proxy_tensor import make_fx

import fxstack_inductor as fi

pytest.importorskip("triton")

GPU = fi.InductorOptions(target="cuda")
B = torch.ops.aten.embedding_dense_backward


def gradients(fn, *inputs, options=GPU):
    """The number of buffers of gradients, of a function whose results equal eager's."""
    graph = make_fx(fn, decomposition_table=TABLE, tracing_mode="fake")(*inputs)
    run = fi.compile_graph(graph, inputs, options)
    expected = fn(*inputs)
    assert_equal(run(*inputs), expected if isinstance(expected, tuple) else (expected,))
    stored = {node.name for step in run.lowered.plan.steps for node in getattr(step, "stored", ())}
    return sum(1 for name in stored if "backward" in name)


def randn(*shape):
    return torch.randn(*shape, generator=torch.Generator().manual_seed(0))


ROWS, MORE, INDEX, OTHER, X = (
    randn(2, 6, 8),
    randn(5, 8),
    torch.arange(12).view(2, 6) % 7,
    torch.arange(5),
    randn(20, 8),
)


CASES = {
    "two": (lambda g, h, i, j, x: B(g, i, 20, -1, False) + B(h, j, 20, -1, False), 1),
    "three": (lambda g, h, i, j, x: B(g, i, 20, 3, False) + B(h, j, 20, 3, False) + B(h, j, 20, 3, False), 1),
    "behind another summand": (lambda g, h, i, j, x: x + B(g, i, 20, -1, False) + B(h, j, 20, -1, False), 1),
    "in the other order": (lambda g, h, i, j, x: B(h, j, 20, 2, False) + (B(g, i, 20, 2, False) + x), 1),
    "a product between": (lambda g, h, i, j, x: B(g, i, 20, -1, False) * x + B(h, j, 20, -1, False), 2),
    "other rows": (lambda g, h, i, j, x: B(g, i, 1, -1, False) + B(h, j, 20, -1, False), 2),
    "other padding": (lambda g, h, i, j, x: B(g, i, 20, 1, False) + B(h, j, 20, 2, False), 2),
    "a factor": (lambda g, h, i, j, x: torch.add(B(g, i, 20, -1, False), B(h, j, 20, -1, False), alpha=2), 2),
}


@pytest.mark.parametrize("case", CASES)
def test_gradients_of_a_sum_share_a_buffer(case):
    fn, buffers = CASES[case]
    assert gradients(fn, ROWS, MORE, INDEX, OTHER, X) == buffers


def test_a_gradient_that_is_a_result_stays_apart():
    def f(g, h, i, j):
        first = B(g, i, 20, -1, False)
        return first, first + B(h, j, 20, -1, False)

    assert gradients(f, ROWS, MORE, INDEX, OTHER) == 2


def test_gradients_stay_apart_where_each_is_rounded():
    def f(g, h, i, j):
        return B(g, i, 20, -1, False) + B(h, j, 20, -1, False)

    rounding = fi.InductorOptions(target="cuda", eager_rounding=True)
    assert gradients(f, ROWS, MORE, INDEX, OTHER, options=rounding) == 2
