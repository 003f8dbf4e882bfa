"""Inputs that kernels write themselves: the same inputs and results as eager, and a copy only where one is needed."""

from dataclasses import replace

import pytest
import torch
from inductor_checks import FAST, assert_equal, copies, trace
from torch._subclasses import FakeTensorMode

import fxstack_inductor as fi

SEED = torch.Generator().manual_seed(0)
X, Y, W = (torch.randn(8, 8, generator=SEED) for _ in range(3))
INDEX = torch.tensor([3, 1, 7])


def compiled(fn, *inputs, options=FAST):
    """Compile, run beside eager, compare results and all inputs; returns the host program."""
    run = fi.compile_graph(trace(fn, *copies(inputs)), inputs, options)
    ours, theirs = copies(inputs), copies(inputs)
    assert_equal(run(*ours), fn(*theirs))
    assert_equal(ours, theirs)
    return run.lowered.host


def adam(p, g, m, v):
    p.mul_(0.99)
    m.lerp_(g, 0.1)
    v.mul_(0.9).addcmul_(g, g, value=0.1)
    p.addcdiv_(m, v.abs().sqrt().add_(1e-8), value=-0.1)
    return ()


def shifted(x, y):
    old = x * 2
    x.add_(1)
    return old, x * y


def normalised(x):
    x.sub_(x.mean())
    return (x.sum(),)


def filled(x, y):
    x.zero_()
    y.copy_(x + 1)
    return ()


def averaged(x, mean, square):
    """Running statistics of a batch, as of a batch norm."""
    mean.mul_(0.9).add_(x.mean(1), alpha=0.1)
    square.mul_(0.9).add_((x - x.mean(1, keepdim=True)).square().mean(1), alpha=0.1)
    return (x - x.mean(1, keepdim=True),)


def averaged_columns(x, mean):
    mean.mul_(0.9).add_(x.mean(0), alpha=0.1)
    return (x - x.mean(0),)


def mean_is_used_twice(x, mean):
    old = mean * 2
    mean.mul_(0.9).add_(x.mean(0), alpha=0.1)
    return x - x.mean(0), old


IN_PLACE = [
    (averaged, (X, Y[0].clone(), W[0].clone())),
    (averaged_columns, (X, Y[0].clone())),
    (adam, (X, Y, W, W.abs())),
    (shifted, (X, Y)),
    (filled, (X, Y)),
    (lambda x, y: (x.add_(y.t()).exp(),), (X, Y)),
    (lambda x: (x.mul_(2).exp(),), (X.t(),)),
    (lambda x: (x.copy_(x.cumsum(0)).sum(),), (X,)),
    (lambda x, y: (x.copy_(y.sum(0).expand(8, 8)).exp(),), (X, Y)),
]


@pytest.mark.parametrize(("fn", "inputs"), IN_PLACE)
def test_written_by_the_kernel(fn, inputs):
    assert ".copy_(" not in compiled(fn, *inputs)


@pytest.mark.parametrize("shape", [(8, 8), (3, 9000)])
def test_running_statistics_are_written_by_a_gpu_kernel(shape):
    pytest.importorskip("triton")
    inputs = torch.randn(shape, generator=SEED), torch.zeros(shape[0]), torch.ones(shape[0])
    assert ".copy_(" not in compiled(averaged, *inputs, options=replace(FAST, target="cuda"))


def reads_the_mirror(x):
    x.copy_(x.t() + 1)
    return ()


def multiplied_before(x, w):
    product = x @ w
    x.add_(1)
    return (product,)


def swapped(x, y):
    old = x.clone()
    x.copy_(y)
    y.copy_(old)
    return ()


def out_of_range_is_possible(x, y, index):
    x.add_(1)
    return (y[index],)


def row_by_row(x):
    x.sub_(x.sum(1, keepdim=True))
    return ()


COPIED = [
    (mean_is_used_twice, (X, Y[0].clone())),
    (reads_the_mirror, (X,)),
    (out_of_range_is_possible, (X, Y, INDEX)),
    (row_by_row, (X,)),
    (lambda x: (x.copy_(x.flip(0)).sum(),), (X,)),
    (lambda x: (x.mul_(2).sum(),), (X,)),
    (lambda x: (x.mul_(2),), (X,)),
    (lambda x: (x.t().mul_(3).sum(),), (X,)),
]


@pytest.mark.parametrize(("fn", "inputs"), COPIED)
def test_copied_at_the_end(fn, inputs):
    assert ".copy_(" in compiled(fn, *inputs)


@pytest.mark.parametrize(
    ("fn", "inputs"), [(multiplied_before, (X, W)), (swapped, (X, Y)), (normalised, (X,))]
)
def test_old_values_are_read_first(fn, inputs):
    compiled(fn, *inputs)


def test_a_failing_index_leaves_inputs_alone():
    graph = trace(out_of_range_is_possible, X.clone(), Y, INDEX)
    run = fi.compile_graph(graph, (), FAST)
    x = X.clone()
    with pytest.raises(IndexError, match="out of bounds"):
        run(x, Y, torch.tensor([3, 1, 99]))
    assert torch.equal(x, X)


def averaged_beside_an_index(x, mean, square, index):
    return *averaged(x, mean, square), x[index]


def test_a_gpu_writes_statistics_although_an_index_may_be_out_of_range():
    with FakeTensorMode():
        inputs = [torch.empty(n, device="cuda") for n in ((8, 8), 8, 8)]
        graph = trace(averaged_beside_an_index, *inputs, torch.empty(3, dtype=torch.int64, device="cuda"))
    plan = fi.lower(graph, target="cuda").plan
    assert any(step.kernel.checked for step in plan.steps)
    assert not plan.copies


def repeated(x, y):
    wide = (x.exp()[:, None] * y).sin()
    x.copy_(x.exp() + 1)
    return (wide,)


def each(x, y):
    x.exp_()
    y.mul_(2).add_(y)
    return ()


def test_programs_of_a_gpu_read_no_element_that_another_program_writes():
    pytest.importorskip("triton")
    gpu = fi.InductorOptions(target="cuda")
    inputs = torch.randn(64, generator=SEED), torch.randn(64, 300, generator=SEED)
    assert "arg0_1.copy_(" in compiled(repeated, *inputs, options=gpu)
    assert ".copy_(" not in compiled(each, *inputs, options=gpu)
