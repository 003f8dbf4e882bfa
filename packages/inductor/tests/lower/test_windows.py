"""Pooling, forward and backward: windows that overlap, that reach over the edges, that leave a rest."""

import math

import pytest
import torch
from inductor_checks import check, check_gradients, externs, fused
from torch.nn import functional as F

POOLS = [
    {"kernel_size": 2},
    {"kernel_size": 3, "stride": 2, "padding": 1},
    {"kernel_size": (2, 3), "stride": (1, 2), "padding": (1, 0)},
    {"kernel_size": 3, "stride": 2, "ceil_mode": True},
    {"kernel_size": 3, "stride": 2, "padding": 1, "ceil_mode": True},
    {"kernel_size": 2, "stride": 3},
    {"kernel_size": 3, "stride": 1, "padding": 1},
]
DILATED = [
    {"kernel_size": 3, "dilation": 2},
    {"kernel_size": 3, "dilation": 2, "padding": 1, "stride": 2},
    {"kernel_size": (2, 3), "dilation": (3, 1), "padding": (1, 1), "ceil_mode": True},
]
AVERAGES = [
    *POOLS,
    {"kernel_size": 3, "stride": 2, "padding": 1, "count_include_pad": False},
    {"kernel_size": 3, "padding": 1, "divisor_override": 5},
    {"kernel_size": 3, "stride": 2, "padding": 1, "ceil_mode": True, "count_include_pad": False},
]


def image(*shape, dtype=torch.float32):
    return torch.randn(shape).to(dtype)


def lowered(compiled):
    assert not externs(compiled)


@pytest.mark.parametrize("how", AVERAGES)
def test_average(how):
    lowered(check(lambda x: F.avg_pool2d(x, **how), image(2, 3, 11, 9)))


@pytest.mark.parametrize("how", AVERAGES)
def test_average_backward(how):
    check_gradients(lambda x: F.avg_pool2d(x, **how).sin(), image(2, 3, 11, 9))


@pytest.mark.parametrize("how", [*POOLS, *DILATED])
def test_maximum(how):
    compiled = check(lambda x: F.max_pool2d(x, **how, return_indices=True), image(2, 3, 11, 9))
    assert fused(compiled)


@pytest.mark.parametrize("how", [*POOLS, *DILATED])
def test_maximum_backward(how):
    lowered(check_gradients(lambda x: F.max_pool2d(x, **how).sin(), image(2, 3, 11, 9)))


@pytest.mark.parametrize("fill", [math.nan, -math.inf, 1.0])
def test_maximum_of_equals(fill):
    x = torch.full((1, 1, 6, 6), fill)
    check(lambda x: F.max_pool2d(x, 3, 2, 1, return_indices=True), x)


def test_maximum_with_some_nan():
    x = image(1, 2, 8, 8)
    x[0, 0, 2, 3] = x[0, 1, 5, 5] = x[0, 1, 5, 6] = math.nan
    check(lambda x: F.max_pool2d(x, 3, 1, 1, return_indices=True), x)


@pytest.mark.parametrize("dtype", [torch.float64, torch.bfloat16, torch.float16])
def test_dtypes(dtype):
    x = image(2, 3, 8, 8, dtype=dtype)
    check(lambda x: (F.avg_pool2d(x, 3, 2, 1), F.max_pool2d(x, 2)), x)


def test_channels_last_and_unbatched():
    x = image(2, 8, 9, 9).contiguous(memory_format=torch.channels_last)
    check(lambda x: (F.avg_pool2d(x, 2), *F.max_pool2d(x, 3, 2, 1, return_indices=True)), x)
    check(lambda x: (F.avg_pool2d(x, 2), F.max_pool2d(x, 3)), image(3, 9, 9))


def test_symbolic_sizes():
    others = [(image(2, 5, 7, 30),), (image(6, 4, 20, 9),)]
    for how in ({"kernel_size": 2}, {"kernel_size": 3, "stride": 2, "padding": 1}):
        check(
            lambda x: (F.avg_pool2d(x, **how), F.max_pool2d(x, **how)),
            image(4, 3, 12, 10),
            symbolic=True,
            others=others,
        )


def test_adaptive():
    lowered(check(lambda x: F.adaptive_avg_pool2d(x, (2, 3)), image(2, 3, 8, 9)))
    check(lambda x: F.adaptive_avg_pool2d(x, (3, 4)), image(2, 3, 8, 9))
    check_gradients(lambda x: F.adaptive_avg_pool2d(x, (2, 3)).sin(), image(2, 3, 8, 9))


def test_windows_without_a_larger_number_name_their_first_element():
    x = torch.full((1, 1, 9, 9), -math.inf)
    for how in DILATED:
        check(lambda x: F.max_pool2d(x, **how, return_indices=True), x)


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float64])
def test_maximum_backward_of_dtypes(dtype):
    check_gradients(lambda x: F.max_pool2d(x, 3, 1, 1), image(2, 3, 8, 8, dtype=dtype))


def test_maximum_backward_of_channels_last():
    x = image(2, 8, 9, 9).contiguous(memory_format=torch.channels_last)
    check_gradients(lambda x: F.max_pool2d(x, 3, 2, 1), x)


def test_large_windows_are_left_to_aten():
    assert externs(check(lambda x: F.max_pool2d(x, 7), image(1, 2, 14, 14)))
