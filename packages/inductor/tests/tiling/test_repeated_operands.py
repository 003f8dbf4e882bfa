"""Tiles of rows and columns for operands that repeat along the points: which kernels get them, and their values."""

import pytest
import torch
from inductor_checks import trace

from fxstack_inductor import InductorOptions, compile_graph
from fxstack_inductor.targets.triton.lower import lower_triton
from fxstack_inductor.tiling import repeated_operands

pytest.importorskip("triton")
TRITON = InductorOptions(target="cuda")


def tiling(fn, *shapes, dtype=torch.float32):
    """The tiling of the only kernel."""
    inputs = [torch.empty(shape, dtype=dtype) for shape in shapes]
    (function,) = lower_triton(trace(fn, *inputs), TRITON).source.functions.values()
    return function.tiling


def sizes(*args, **kwargs):
    """Kind, rows and columns of a kernel's tiles."""
    found = tiling(*args, **kwargs)
    return found.kind, found.config.xblock, found.config.rblock


def scaled(x, weight):
    return x * weight[:, None, None]


def biased(x, bias):
    return (x + bias).relu()


def test_a_channel_is_loaded_once_for_its_positions():
    assert sizes(scaled, (8, 64, 56, 56), (64,)) == ("tiled", 8, 128)


def test_few_rows_make_a_small_tile():
    assert sizes(scaled, (1, 2, 8, 16), (2,)) == ("tiled", 1, 128)


def test_rows_of_odd_length_stay_points():
    assert sizes(scaled, (8, 64, 7, 7), (64,))[0] == "flat"


def test_short_rows_stay_points():
    assert sizes(scaled, (8, 64, 2, 4), (64,))[0] == "flat"


def test_a_bias_is_loaded_once_for_several_rows_of_a_large_matrix():
    assert sizes(biased, (8192, 1024), (1024,)) == ("tiled", 2, 1024)


@pytest.mark.parametrize("shape", [(128, 1024), (32768, 256), (8192, 1536)])
def test_a_bias_of_few_or_short_rows_is_a_point(shape):
    assert sizes(biased, shape, shape[-1:])[0] == "flat"


def check(fn, *inputs, **tolerance):
    """Interpreted kernels equal eager, values and strides."""
    expected = fn(*inputs)
    for got, wanted in zip(compile_graph(trace(fn, *inputs), inputs, TRITON)(*inputs), expected, strict=True):
        torch.testing.assert_close(got, wanted, **tolerance)
        assert got.stride() == wanted.stride()


def randn(*shape, dtype=torch.float32):
    return torch.testing.make_tensor(shape, dtype=dtype, device="cpu", low=-3, high=3)


def norm(x, mean, variance, weight, bias):
    return (torch.nn.functional.batch_norm(x, mean, variance, weight, bias).relu(),)


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.float16])
@pytest.mark.parametrize("side", [4, 7, 10])
@pytest.mark.parametrize("layout", [torch.contiguous_format, torch.channels_last])
def test_images_with_parameters_of_channels_equal_eager(dtype, side, layout):
    x = randn(3, 20, side, side, dtype=dtype).contiguous(memory_format=layout)
    check(norm, x, randn(20), randn(20).abs() + 1, randn(20), randn(20), rtol=2e-2, atol=2e-2)


def test_what_has_one_value_for_a_row_is_stored_once():
    check(lambda x, y: (x + y, y.exp()), randn(30, 208), randn(30, 1))


def test_rows_and_columns_repeat_at_once():
    check(lambda x, y, z: (x * y + z,), randn(30, 208), randn(30, 1), randn(208))


def test_masks_and_looked_up_elements():
    index = torch.randint(0, 9, (30, 64))
    check(lambda x, t, y: (torch.where(y > 0, t[x], y),), index, randn(9), randn(30, 1))


def test_one_number_has_no_loops():
    check(lambda x: (x + 1,), randn())


def test_a_bias_of_long_rows_equals_eager(monkeypatch):
    monkeypatch.setattr(repeated_operands, "PROGRAMS", 1)
    check(lambda x, b: (x + b,), randn(5, 1000), randn(1000))
