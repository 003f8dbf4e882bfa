"""Small kernels of a GPU that run side by side: which do, and that interpreted kernels give eager's numbers."""

import re

import pytest
import torch
from inductor_checks import assert_equal, copies, trace

import fxstack_inductor as fi
from fxstack_inductor.schedule import side_by_side
from fxstack_inductor.schedule.steps import KernelStep

pytest.importorskip("triton")

GPU = fi.InductorOptions(target="cuda")


def randn(*shape):
    return torch.randn(*shape, generator=torch.Generator().manual_seed(0))


def launches(fn, *inputs):
    """Compare results and inputs with eager; return how many kernels each launch has."""
    run = fi.compile_graph(trace(fn, *copies(inputs)), inputs, GPU)
    ours, theirs = copies(inputs), copies(inputs)
    assert_equal(run(*ours), fn(*theirs))
    assert_equal(ours, theirs)
    return [len(s.kernel.parts) or 1 for s in run.lowered.plan.steps if isinstance(s, KernelStep)]


X, Y, Z, N = randn(30, 20), randn(7, 9), randn(50, 33), torch.tensor(3)


def counters(n, m, x):
    n.add_(1)
    m.add_(2)
    return (x.sum(0),)


def chain(x, y):
    """Two chains of a reduction and its reader at another shape."""
    return tuple(z.sum(0, keepdim=True).expand(40, z.shape[1]).exp().sum(1) for z in (x, y))


def later_needs(x, y, w):
    first, second = x.exp(), y.sum(0)
    return first @ w, second


def overwritten(x, y):
    """A kernel that reads an input stays in front of the kernel that writes the input."""
    old = x.sum(0)
    x.copy_(y.sum(0).expand(30, 20))
    return (old,)


@pytest.mark.parametrize(
    ("fn", "inputs", "expected"),
    [
        (lambda x, y, z, n: (x.sum(0), y.exp(), z.amax(1), n + 1), (X, Y, Z, N), [4]),
        (lambda x, y: (x.t().contiguous(), y.argmax(1), x.t() + 1), (X, Y), [2]),
        (lambda x, y: (x.bfloat16().sum(1), y > 0), (X, Y), [2]),
        (lambda x, y: (x.float(), y.float()), (X.bfloat16(), Y.half()), [2]),
        (counters, (N, torch.tensor([4, 5]), X), [3]),
        (chain, (X, Y), [2, 2]),
        (later_needs, (X, Y, randn(20, 4)), [1, 1]),
        (overwritten, (X, randn(3, 20)), [2, 1]),
        (lambda x, y: (x.sum(), y.sum()), (randn(300, 300), Y), [1, 2]),
        (lambda x, i: (x[i], x.exp().sum(0)), (X, torch.tensor([1, 2])), [1, 1]),
    ],
)
def test_launches(fn, inputs, expected):
    assert launches(fn, *inputs) == expected


def test_a_launch_has_a_limited_number_of_kernels(monkeypatch):
    monkeypatch.setattr(side_by_side, "KINDS", 2)
    assert launches(lambda *xs: tuple(x.exp() for x in xs), *(randn(n) for n in range(2, 7))) == [2, 2, 1]


def test_equal_kernels_count_once(monkeypatch):
    monkeypatch.setattr(side_by_side, "KINDS", 2)
    inputs = [randn(n) for n in (2, 3, 2, 4, 3, 2)]
    assert launches(lambda *xs: tuple(x.exp() for x in xs), *inputs) == [5, 1]


def test_buffers_of_a_launch_are_limited(monkeypatch):
    monkeypatch.setattr(side_by_side, "BUFFERS", 7)
    assert launches(lambda *xs: tuple(x.exp() for x in xs), *(randn(3) for _ in range(5))) == [3, 2]


def test_tensors_that_wait_are_limited(monkeypatch):
    monkeypatch.setattr(side_by_side, "WAITING", 8)
    assert launches(lambda *xs: tuple(x.exp() for x in xs), *(randn(n) for n in range(3, 7))) == [3, 1]


def calls(fn, *inputs):
    """The functions that the only launch calls, in order, and how often it chooses between tensors."""
    text = fi.lower(trace(fn, *inputs), inputs, target="cuda").triton
    whole = text[text.index("number = ") :]
    return re.findall(r"kernel_0_\d(?=\()", whole), len(re.findall(r"if g\d+ >=", whole))


def widened(*xs):
    return tuple(x.float() + 1.0 for x in xs)


def test_kernels_do_not_wait_where_this_raises_the_peak_of_memory():
    def steps(x, w):
        y = x @ w
        total = y.sum(0)
        z = (y @ w).exp()
        return total, (z @ w).sum(0), z @ w.t()

    small, large = ((randn(64, n), randn(n, n)) for n in (8, 700))
    assert launches(steps, *small) == [1, 2]
    assert launches(steps, *large) == [1, 1, 1]


def test_equal_kernels_are_one_call():
    assert calls(widened, randn(5), randn(5), randn(6)) == (["kernel_0_0", "kernel_0_1"], 1)


def test_kernels_that_differ_in_dtypes_alone_are_calls_of_one_function():
    """A function's types are those of its call: one choice between tensors of two dtypes has no type."""
    inputs = [randn(5).to(dtype) for dtype in (torch.bfloat16, torch.float16, torch.bfloat16)]
    assert calls(widened, *inputs) == (["kernel_0_0", "kernel_0_0"], 1)


EQUAL = {
    "points": (lambda *xs: tuple(x.exp() for x in xs), (X, -X, X + 1), [3]),
    "many programs": (lambda *xs: tuple(x.exp() for x in xs), (randn(5000), randn(5000), randn(5000)), [3]),
    "sums": (lambda *xs: tuple(x.sum(0) for x in xs), (X, -X, X + 1), [3]),
    "sums of two shapes": (lambda *xs: tuple(x.sum(0) for x in xs), (X, Y, -X, -Y, X + 1), [5]),
    "two dtypes": (widened, (X.bfloat16(), X.half(), -X.half(), -X.bfloat16()), [4]),
    "as many as buffers allow": (lambda *ns: tuple(n + 1 for n in ns), [N + k for k in range(100)], [96, 4]),
    "numbers": (lambda *ns: tuple(n + 1 for n in ns), (N, N + 1, N + 2), [3]),
}


@pytest.mark.parametrize("name", EQUAL)
def test_equal_kernels_choose_their_tensors(name):
    fn, inputs, expected = EQUAL[name]
    assert launches(fn, *inputs) == expected


def test_kernels_for_the_cpu_stay_apart():
    graph = trace(lambda x, y: (x.sum(0), y.exp()), X, Y)
    assert len(fi.lower(graph, (X, Y)).plan.steps) == 2
