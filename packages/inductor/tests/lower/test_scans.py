"""Running sums, products and extremes beside eager: precision, order, NaN, positions, fusion."""

import pytest
import torch
from inductor_checks import check, check_gradients, externs, fused

X = torch.randn(6, 33, 20)
TIES = torch.tensor([[1.0, 3.0, 3.0, torch.nan, 2.0, torch.nan], [-0.0, 0.0, -1.0, 0.0, -0.0, -2.0]])
SCANS = {
    "cumsum": torch.cumsum,
    "cumprod": torch.cumprod,
    "logcumsumexp": torch.logcumsumexp,
    "cummax": torch.cummax,
    "cummin": torch.cummin,
}


@pytest.mark.parametrize("name", SCANS)
@pytest.mark.parametrize("dim", [0, 1, -1])
def test_along_every_dimension(name, dim):
    compiled = check(lambda x: SCANS[name](x, dim), X)
    assert not externs(compiled)


@pytest.mark.parametrize("name", ["cumsum", "cumprod"])
@pytest.mark.parametrize("dim", [0, 1])
def test_sums_are_eagers_to_the_last_bit(name, dim):
    x = torch.randn(300, 70)
    compiled = check(lambda x: SCANS[name](x, dim), x)
    assert torch.equal(compiled(x)[0], SCANS[name](x, dim))


@pytest.mark.parametrize("name", SCANS)
@pytest.mark.parametrize("dtype", [torch.float64, torch.bfloat16, torch.int32, torch.uint8])
def test_dtypes(name, dtype):
    if name == "logcumsumexp" and not dtype.is_floating_point:
        return
    check(lambda x: SCANS[name](x, 1), (X[0] * 3).to(dtype))


@pytest.mark.parametrize("name", SCANS)
@pytest.mark.parametrize("dim", [0, 1])
def test_nan_and_ties(name, dim):
    check(lambda x: SCANS[name](x, dim), TIES)


def test_infinities():
    x = torch.tensor([-torch.inf, -torch.inf, 1.0, torch.inf, torch.inf, 2.0])
    check(lambda x: (x.logcumsumexp(0), x.cumsum(0), *x.cummax(0)), x)


def test_conversions_and_booleans():
    check(lambda x: ((x > 0).cumsum(1), x.cumsum(1, dtype=torch.float64)), X)
    check(lambda x: x.cumsum(0, dtype=torch.int32), torch.randint(0, 9, (8,)))


def test_neighbours_share_the_loops():
    assert fused(check(lambda x: (x * 2).cumsum(-1).relu() + 1, X))
    assert fused(check(lambda x: (x.cumsum(1), x.cumprod(1), x.sum(1)), X))
    assert fused(check(lambda x: x.exp().cumsum(1) / x.exp().sum(1, keepdim=True), X))


@pytest.mark.parametrize("dim", [0, 1, 2])
def test_a_scan_that_a_later_pass_needs_again(dim):
    check(lambda x: x.cumsum(dim) / x.cumsum(dim).amax(dim, keepdim=True), X)


def test_along_merged_and_turned_dimensions():
    check(lambda x: (x * 2).reshape(6, -1).cumsum(1).view(6, 33, 20) + x, X)
    check(lambda x: x.transpose(1, 2).cumsum(1), X)
    check(lambda x: x.flip(1).cumsum(1).flip(1) * x, X)


@pytest.mark.parametrize("shape", [(1,), (5, 1), (0, 3), (3, 0)])
def test_few_and_no_elements(shape):
    check(lambda x: (x.cumsum(-1), *x.cummax(-1)), torch.randn(shape))


@pytest.mark.parametrize("name", ["cumsum", "logcumsumexp"])
def test_gradients(name):
    check_gradients(lambda x: SCANS[name](x, 1).square(), X[0])


def test_symbolic_sizes():
    fn = lambda x: (x.cumsum(0), x.cumsum(1) * 2, *x.cummax(1))
    check(fn, torch.randn(5, 9), symbolic=True, others=[(torch.randn(3, 70),), (torch.randn(2, 2),)])


def test_masked_scatter():
    mask, source = torch.rand(33, 20) > 0.4, torch.randn(40, 50)
    assert not externs(check(lambda x, m, s: x.masked_scatter(m, s), X[0], mask, source))
    check(lambda x, m, s: x.masked_scatter(m, s), X[0], mask[0], source)


def test_masked_scatter_of_too_few_raises_eagers_error():
    compiled = check(lambda x, m, s: x.masked_scatter(m, s), X[0], X[0] > 9, torch.randn(3))
    with pytest.raises(RuntimeError, match="umber of elements of source"):
        compiled(X[0], X[0] < 9, torch.randn(3))


def test_a_size_that_only_a_bound_needs_is_known_in_time():
    def fn(x, m):
        return x.masked_scatter(m, torch.ones_like(torch.masked_select(x, m)))

    check(fn, X[0], X[0] > 0)
