"""Results that kernels of a GPU write over operands: which are, and that interpreted kernels give eager's numbers."""

import pytest
import torch
from inductor_checks import assert_equal, copies, trace

import fxstack_inductor as fi
from fxstack_inductor.schedule.steps import KernelStep

pytest.importorskip("triton")

GPU = fi.InductorOptions(target="cuda")
X, Y = (torch.randn(40, 40, generator=torch.Generator().manual_seed(seed)) / 8 for seed in (0, 1))
INDEX = torch.randint(40, (40,), generator=torch.Generator().manual_seed(2))


def overwritten(fn, *inputs):
    """Compare results and inputs with eager; return the number of kernels that write over a tensor they read."""
    run = fi.compile_graph(trace(fn, *copies(inputs)), inputs, GPU)
    ours, theirs = copies(inputs), copies(inputs)
    results = fn(*theirs)
    assert_equal(run(*ours), results if isinstance(results, tuple) else (results,))
    assert_equal(ours, theirs)
    kernels = [step.kernel for step in run.lowered.plan.steps if isinstance(step, KernelStep)]
    return sum(bool(kernel.written & kernel.read) for kernel in kernels)


def two_readers(x, y):
    product = x @ y
    return product.exp() @ y, product.sum(0)


def read_later(x, y):
    product = x @ y
    return (product.exp() @ y) + product @ x


def saved_view(x, y):
    product = x @ y
    return product.exp() @ y, product[1]


def of_rows(x, y):
    product = x @ y
    return product.softmax(1) @ y


def gathered(x, y, index):
    product = x @ y
    return (product + product[index]) @ y


def two_results(x, y):
    product = x @ y
    return product.exp() @ y + product.sin() @ x


def two_operands(x, y):
    a, b = x @ y, y @ x
    return (a * b).tanh() @ y + (a + b).sin() @ x


def read_side_by_side(x, y):
    """Two small kernels that one launch runs read a result that was written over an operand."""
    values = (x @ y).exp()
    return (values @ values).sum(0), values[1] + 1


@pytest.mark.parametrize(
    ("fn", "inputs", "expected"),
    [
        (lambda x, y: (x @ y).exp() @ y, (X, Y), 1),
        (lambda x, y: ((x @ y).exp() @ y).sin() @ x, (X, Y), 2),
        (lambda x, y: ((x @ y) + (y @ x)).tanh() @ x, (X, Y), 1),
        (two_results, (X, Y), 1),
        (two_operands, (X, Y), 1),
        (lambda x, y: (x.cumsum(0) * y) @ y, (X, Y), 0),
        (lambda x, y: ((x @ y)[:, :1] + y) @ y, (X, Y), 0),
        (lambda x, y: ((x @ y).t() + y) @ y, (X, Y), 0),
        (gathered, (X, Y, INDEX), 0),
        (lambda x, y: (x @ y).flip(0).exp() @ y, (X, Y), 0),
        (lambda x, y: (x @ y).double().exp() @ y.double(), (X, Y), 0),
        (lambda x, y: x.exp() @ y, (X, Y), 0),
        (lambda x, y: ((x @ y).exp(),), (X, Y), 0),
        (read_side_by_side, (X, Y), 1),
        (two_readers, (X, Y), 0),
        (read_later, (X, Y), 0),
        (saved_view, (X, Y), 0),
        (of_rows, (X, Y), 0),
    ],
)
def test_overwrites_operands_of_equal_layout_after_their_last_use(fn, inputs, expected):
    assert overwritten(fn, *inputs) == expected
