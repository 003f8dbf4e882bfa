"""Kernels over rows that begin sums over columns: which do, and that interpreted kernels give eager's numbers."""

import pytest
import torch
from torch.fx.experimental.proxy_tensor import make_fx

from fxstack_inductor import InductorOptions, compile_graph, decompositions
from fxstack_inductor.lower.reductions import split
from fxstack_inductor.targets.triton.lower import lower_triton

pytest.importorskip("triton")

OPTIONS = InductorOptions(target="cuda")


@pytest.fixture(autouse=True)
def few_programs(monkeypatch):
    """Columns of 60 rows are split into parts for 4 to 8 programs, as columns of 4096 rows are for 256."""
    monkeypatch.setattr(split, "ROW_PROGRAMS", (4, 8))
    monkeypatch.setattr(split, "SHORT_COLUMN", 50)
    monkeypatch.setattr(split, "COLUMN", 2)


def randn(*shape, dtype=torch.float32):
    return torch.randn(*shape, generator=torch.Generator().manual_seed(0)).to(dtype)


def lowered(fn, *inputs):
    return lower_triton(
        make_fx(fn, decomposition_table=decompositions(), tracing_mode="fake")(*inputs), OPTIONS
    )


def check(fn, *inputs):
    """Compare with eager; returns the number of rows of a program of each kernel, 0 without sums over columns."""
    graph = make_fx(fn, decomposition_table=decompositions(), tracing_mode="fake")(*inputs)
    compiled = compile_graph(graph, inputs, OPTIONS)
    half = inputs[0].dtype is not torch.float32
    # Eager adds up half precision on the CPU in half precision.
    wanted = fn(*(x.float() for x in inputs)) if half else fn(*inputs)
    for got, want in zip(compiled(*inputs), wanted if isinstance(wanted, tuple) else (wanted,), strict=True):
        assert got.stride() == want.stride()
        torch.testing.assert_close(
            got.float(), want, rtol=2e-2 if half else 1e-4, atol=1e-1 if half else 1e-4
        )
    return [step.kernel.rows for step in compiled.lowered.plan.steps]


def gradients(fn):
    """Return a function of the inputs and the gradient of the result that returns the gradients of the inputs."""

    def run(dy, *inputs):
        leaves = [x.detach().requires_grad_() for x in inputs]
        return torch.autograd.grad(fn(*leaves), leaves, dy)

    return run


def rms_norm(x, w):
    h = x.float()
    return w * (h * torch.rsqrt(h.pow(2).mean(-1, keepdim=True) + 1e-6)).to(x.dtype)


def layer_norm(x, w, b):
    return torch.nn.functional.layer_norm(x, x.shape[-1:], w, b)


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.float16])
@pytest.mark.parametrize("shape", [(60, 40), (3, 20, 33), (57, 7)])
@pytest.mark.parametrize(("norm", "weights"), [(rms_norm, 1), (layer_norm, 2)])
def test_gradients_of_norms_read_rows_once(norm, weights, shape, dtype):
    x = randn(*shape, dtype=dtype)
    inputs = [randn(shape[-1], dtype=dtype) + k for k in range(weights)]
    rows = check(gradients(norm), randn(*shape, dtype=dtype), x, *inputs)
    # 57 rows have no parts for 4 to 8 programs of as many rows each.
    assert [r for r in rows if r] == ([] if shape == (57, 7) else [60 // 6])


def sums_of_result(x, w):
    """The sum over columns reads what the kernel over rows stores, rounded."""
    y = (x.softmax(-1) * w).to(x.dtype)
    return y, y.sum(0)


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_stored_results_are_summed_as_they_are_in_memory(dtype):
    assert check(sums_of_result, randn(60, 40, dtype=dtype), randn(40, dtype=dtype))[0] == 10


def test_elements_that_the_sums_compute_are_stored_with_the_rows():
    """As in a backward, which computes a norm's result again for a product."""

    def normed(x, w, dy):
        scale = torch.rsqrt((x * x).mean(-1, keepdim=True) + 1e-6)
        again = (x * scale).to(x.dtype)
        return (dy * w * x).sum(-1), (dy * again).sum(0), w * again

    inputs = randn(60, 40, dtype=torch.bfloat16), randn(40), randn(60, 40) + 1
    assert 10 in check(normed, *inputs)


def test_each_kernel_over_rows_takes_its_own_sums():
    def two(x, y):
        return x.softmax(-1), (x * 2).sum(0), y.softmax(-1), y.exp().sum(0)

    assert sorted(check(two, randn(60, 40), randn(60, 24)))[-2:] == [10, 10]


@pytest.mark.parametrize(
    "fn",
    [
        lambda x: (x.softmax(-1), (x.t() * 2).sum(1)),
        lambda x: (x.softmax(-1), x.t().reshape(60, 60).sum(0)),
        lambda x: (x.softmax(-1), x.flip(0).sum(0)),
        lambda x: (x.softmax(-1), x.amax(0)),
        lambda x: (x.cumsum(-1), x.sum(0)),
        lambda x: (x.sum(-1), (x / (x.sum(0) + 100)).sum(-1)),
    ],
)
def test_other_sums_equal_eager(fn):
    check(fn, randn(60, 60))


def test_infinities_and_nans_stay_in_their_columns():
    x = randn(60, 40)
    x[3, 5], x[50, 7], x[51, 7] = float("nan"), float("inf"), -float("inf")
    graph = make_fx(lambda x: (x.amax(-1), x.sum(0)), tracing_mode="fake")(x)
    got = compile_graph(graph, (x,), OPTIONS)(x)
    torch.testing.assert_close(got[1], x.sum(0), equal_nan=True)
    torch.testing.assert_close(got[0], x.amax(-1), equal_nan=True)
