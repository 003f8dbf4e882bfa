"""Variances in one pass: as precise as in two, for every layout, and for data that one pass could lose."""

import pytest
import torch
from inductor_checks import FAST, check, kernels, trace

import fxstack_inductor as fi
from fxstack_inductor.codegen.c.reductions.variance import POINTS, in_one_pass
from fxstack_inductor.codegen.c.strategy import strategy
from fxstack_inductor.ir.analysis import analyse
from fxstack_inductor.ir.kernel import Reduce

DTYPES = [torch.float32, torch.bfloat16]


def passes(compiled):
    """The passes of each kernel before and after."""
    return [(analyse(k).last_stage, analyse(in_one_pass(k)).last_stage) for k in kernels(compiled)]


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize(
    ("shape", "dims", "expected"),
    [
        ((80, 39), (1,), "short_rows"),
        ((9, 300), (1,), "rows"),
        ((300, 40), (0,), "columns"),
        ((1, 40000), (1,), "whole"),
        ((9, 16, 48), (1, 2), "rows"),
    ],
)
def test_variances_take_one_pass(dtype, shape, dims, expected):
    x = torch.randn(shape).to(dtype)
    compiled = check(lambda x: (x.var(dims), x.std(dims, correction=0)), x)
    assert [strategy(in_one_pass(k)) for k in kernels(compiled)] == [expected]
    assert passes(compiled) == [(2, 1)]


def test_passes_that_use_the_result_and_the_mean():
    def both(x, y):
        variance, mean = torch.var_mean(x * y, -1, keepdim=True)
        z = (x * y - mean) / (variance + 1).sqrt()
        return z, z.std(-1), mean

    compiled = check(both, torch.randn(20, 256), torch.randn(256))
    assert passes(compiled) == [(4, 2)]


@pytest.mark.parametrize("shift", [0, 1e3, -1e6, 3e7])
@pytest.mark.parametrize("place", [0, 1, 150])
@pytest.mark.parametrize("far", [None, 1e9, 1e30])
def test_results_are_as_precise_as_single_precision(shift, place, far):
    x = torch.randn(6, 300) * 4 + shift
    if far is not None:
        x[:, place] = far
    wanted = x.double().var(-1).float()
    torch.testing.assert_close(x.var(-1), wanted, rtol=2e-7, atol=0)
    compiled = check(lambda x: x.var(-1), x)
    torch.testing.assert_close(compiled(x)[0], wanted, rtol=2e-7, atol=0)


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("number", [0.0, -0.0, 0.1, -3e38, 1e-40])
def test_equal_elements_have_no_variance(dtype, number):
    x = torch.full((8, 77), number).to(dtype)
    results = check(lambda x: (x.var(-1), x.std(0)), torch.cat([x] * 5))(torch.cat([x] * 5))
    assert not any(result.any() for result in results)


@pytest.mark.parametrize("special", [torch.nan, torch.inf, -torch.inf, 3e38])
@pytest.mark.parametrize("place", [0, 1, 76])
def test_what_is_special(special, place):
    x = torch.randn(8, 77)
    x[::2, place] = special
    check(lambda x: (x.var(-1), x.std(0)), x)
    check(lambda x: x.var(-1), torch.full((40, 40), special))
    (mean,) = fi.compile_graph(trace(lambda x: torch.var_mean(x, -1)[1], x), [x], FAST)(x)
    torch.testing.assert_close(mean, x.double().mean(-1).float(), equal_nan=True)


def test_places_from_memory_and_conditions_take_two_passes():
    x, places = torch.randn(64, 64), torch.randint(0, 64, (64, 64))
    assert passes(check(lambda x, i: x.gather(1, i).var(-1), x, places)) == [(2, 2)]
    compiled = check(lambda x, y: (torch.where(y > 0, x, y).var(-1), y.sin()[0]), x, x * 2)
    assert passes(compiled)[0] == (2, 1)  # a selection is no condition of a read


def test_few_elements_and_double_precision_take_two_passes():
    few = torch.randn(64, POINTS.start - 1)
    assert passes(check(lambda x: x.var(-1), few)) == [(2, 2)]
    assert passes(check(lambda x: x.var(-1), torch.randn(64, 64).double())) == [(2, 2)]


def test_no_sum_is_left_without_use():
    compiled = check(lambda x: x.var(-1), torch.randn(9, 64))
    (kernel,) = map(in_one_pass, kernels(compiled))
    assert sum(isinstance(value, Reduce) for value in kernel.values) == 2
