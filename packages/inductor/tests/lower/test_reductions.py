"""Reductions and normalisations: values, accuracy, ties, NaN, and that they fuse."""

import itertools

import pytest
import torch
from inductor_checks import check, check_gradients, fused, kernels

F = torch.nn.functional
X = torch.randn(5, 7, 33)
AXES = [c for n in (1, 2, 3) for c in itertools.combinations(range(3), n)]


@pytest.mark.parametrize("axes", AXES)
def test_axes(axes):
    check(
        lambda x: (x.sum(axes), x.mean(axes, keepdim=True), x.amax(axes), x.var(axes), (x > 1).any(axes[0])),
        X,
    )


@pytest.mark.parametrize("dtype", [torch.float64, torch.bfloat16, torch.float16])
def test_floats(dtype):
    check(lambda x: (x.sum(-1), x.mean(0), x.amin(1), x.sum(dtype=torch.float32)), X.to(dtype))


@pytest.mark.parametrize("dtype", [torch.int64, torch.int32, torch.uint8, torch.bool])
def test_integers(dtype):
    x = torch.randint(0, 2, (4, 9)).to(dtype)
    check(lambda x: (x.sum(0), x.sum(), x.amax(1), x.prod(1), x.all(0), x.any()), x)


def test_arg_reductions_take_the_first_and_nan_wins():
    x = torch.tensor([[1.0, 3.0, 3.0, 2.0], [float("nan"), 1.0, float("nan"), 9.0], [2.0, 2.0, 2.0, 2.0]])
    check(lambda x: (x.argmax(1), x.argmin(1), x.argmax(), x.argmax(0), *x.max(1), *x.min(0)), x)


def test_nan_spreads():
    x = X.clone()
    x[2, 3, 4] = float("nan")
    check(lambda x: (x.sum(-1), x.amax(-1), x.amin(), x.max(), x.mean(1)), x)


@pytest.mark.parametrize("shape", [(1_000_003,), (3, 400_001), (70_001, 5)])
def test_long_sums_are_as_accurate_as_eager(shape):
    x = torch.rand(shape) + 0.5
    for axis in range(len(shape)):
        compiled = check(lambda x: x.sum(axis), x)
        exact = x.double().sum(axis)
        ours = (compiled(x)[0].double() - exact).abs().max()
        eager = (x.sum(axis).double() - exact).abs().max()
        assert ours <= 2 * eager + 1e-6 * exact.abs().max()


@pytest.mark.parametrize("dim", [0, 1, -1])
def test_softmax(dim):
    assert fused(check(lambda x: x.softmax(dim), X))
    assert fused(check(lambda x: x.log_softmax(dim), X))


def test_softmax_with_masked_rows():
    x = X.clone()
    x[1, 2] = float("-inf")
    check(lambda x: (x.softmax(-1), torch.ops.aten._safe_softmax(x, -1)), x)


def test_layer_norm_with_its_surroundings_is_one_kernel():
    w, b = torch.randn(2, 33)
    assert fused(check(lambda x, w, b: F.layer_norm(F.gelu(x), (33,), w, b).tanh() + x, X, w, b))


@pytest.mark.parametrize("name", ["softmax", "log_softmax", "layer_norm", "var", "logsumexp"])
def test_gradients(name):
    functions = {
        "softmax": lambda x: x.softmax(-1) * x,
        "log_softmax": lambda x: x.log_softmax(1) * x,
        "layer_norm": lambda x: F.layer_norm(x, (33,)) * x,
        "var": lambda x: x.var(-1) * x.mean(-1),
        "logsumexp": lambda x: x.logsumexp(0),
    }
    check_gradients(functions[name], X)


def test_layer_norm_parameters_gradients():
    w, b = torch.randn(2, 33)
    check_gradients(lambda x, w, b: F.layer_norm(x, (33,), w, b).sin(), X, w, b)


def test_cross_entropy():
    y = torch.randint(0, 33, (35,))
    check(lambda x, y: F.cross_entropy(x.view(35, 33), y, label_smoothing=0.1), X, y)


def test_two_reductions_of_one_tensor_share_a_pass():
    assert len(kernels(check(lambda x: (x.sum(-1), x.amax(-1)), X))) == 1


def test_batch_norm():
    x, w, b, m, v = (torch.randn(4, 3, 5, 5), torch.rand(3), torch.rand(3), torch.zeros(3), torch.ones(3))
    check(lambda x, w, b, m, v: F.batch_norm(x, m, v, w, b, False), x, w, b, m, v)


def test_variances_of_large_bfloat16_numbers():
    x = torch.tensor([1e30, -2e30, 3e29]).bfloat16()
    check(lambda x: (x.std(), x.var(0), torch.std_mean(x)[1]), x)


@pytest.mark.parametrize("size", [1e30, 1e-30, 1e37])
@pytest.mark.parametrize("dim", [None, 0, 1])
def test_variances_of_large_and_small_numbers(size, dim):
    x = torch.tensor([[1.0, -2.5, 3.0], [0.5, 3.3, 2.0], [1.5, 2.5, -3.3]]) * size
    check(
        lambda x: (
            x.std(dim) / size,
            torch.std_mean(x, dim, correction=0)[0] / size,
            torch.std_mean(x, dim)[1] / size,
            torch.var_mean(x, dim)[0],
        ),
        x,
    )


def test_variances_and_means_of_no_rows_are_two_tensors():
    x = torch.rand(0, 3)
    variance, mean = check(lambda x: torch.var_mean(x, -1), x)(x)
    assert variance is not mean


def test_equal_numbers_do_not_vary():
    x = torch.full((3, 7), 0.1)
    assert check(lambda x: (x.std(1), x.var(1)), x)(x)[0].tolist() == [0, 0, 0]


@pytest.mark.parametrize("ord", [0, 1, 2, float("inf"), float("-inf"), 3, 0.5])
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.float64])
def test_vector_norm(ord, dtype):
    x = torch.randn(5, 37, 3).to(dtype)
    x[0, 0, 0], x[1, 2, 1] = 0, float("nan")
    check(lambda x: torch.linalg.vector_norm(x, ord, 1), x)
    check(lambda x: torch.linalg.vector_norm(x, ord, (0, 2), keepdim=True), x)
    check(lambda x: torch.linalg.vector_norm(x, ord), x)
