"""Equal operands of calls become one tensor, and results stay apart."""

import pytest
import torch
from inductor_checks import FAST, TABLE
from torch.fx.experimental.proxy_tensor import make_fx

from fxstack_inductor import compile_graph
from fxstack_inductor.lower.passes import Lowering, lower_by_passes

X, Y = torch.randn(3, 4, 4), torch.randn(3, 4, 4)


def traced(fn, *inputs):
    return make_fx(fn, decomposition_table=TABLE, tracing_mode="fake")(*inputs)


def operands(fn, *inputs):
    """The number of different tensors that calls read, of a function whose results equal eager's."""
    graph = traced(fn, *inputs)
    program = lower_by_passes(Lowering(graph, FAST))
    results = compile_graph(graph, inputs, FAST)(*inputs)
    for actual, expected in zip(results, fn(*inputs), strict=True):
        torch.testing.assert_close(actual, expected, rtol=1e-4, atol=1e-4)
    pointers = [result.data_ptr() for result in results]
    assert len(set(pointers)) == len(pointers)
    return len(
        {id(node) for step in program.steps for node in getattr(step, "reads", ()) if hasattr(step, "target")}
    )


def inverse(x):
    return torch.linalg.inv_ex(x)[0]


CASES = {
    "equal": (lambda x, y: (inverse(x + 1), inverse(x + 1)), 1),
    "equal in several steps": (lambda x, y: (inverse((x * y).exp() + 1), inverse((x * y).exp() + 1)), 1),
    "views of equal": (lambda x, y: (inverse((x + 1).mT), inverse((x + 1).mT)), 1),
    "other numbers": (lambda x, y: (inverse(x + 1), inverse(x + 2)), 2),
    "numbers of other types": (lambda x, y: (inverse(x * 2), inverse(x * 2.0)), 2),
    "zeros of other signs": (lambda x, y: (inverse(x + 0.0), inverse(x + -0.0)), 2),
    "other tensors": (lambda x, y: (inverse(x + 1), inverse(y + 1)), 2),
    "a result": (lambda x, y: (inverse(x + 1), inverse(z := x + 1), z), 2),
    "a view of a result": (lambda x, y: (inverse(x + 1), inverse(z := x + 1), z.mT), 2),
    "copies of operands": (lambda x, y: (inverse(a := x + 1), inverse(b := x + 1), a.clone(), b.clone()), 1),
    "both results": (lambda x, y: (a := x + 1, b := x + 1, inverse(a), inverse(b)), 2),
}


@pytest.mark.parametrize("name", CASES)
def test_operands(name):
    fn, count = CASES[name]
    assert operands(fn, X, Y) == count


def random_masks(x):
    return torch.linalg.inv_ex(torch.rand_like(x))[0], torch.linalg.inv_ex(torch.rand_like(x))[0]


def test_random_operands_stay_apart():
    first, second = compile_graph(traced(random_masks, X), (X,), FAST)(X)
    assert not torch.equal(first, second)


def test_a_new_value_of_an_input_stays_apart():
    def fn(x):
        inverses = torch.linalg.inv_ex(x + 1)[0], torch.linalg.inv_ex(x + 1)[0]
        x.copy_(x + 1)
        return inverses

    x, y = X.clone(), X.clone()
    torch.testing.assert_close(compile_graph(traced(fn, x.clone()), (x,), FAST)(x), fn(y))
    assert torch.equal(x, y)
