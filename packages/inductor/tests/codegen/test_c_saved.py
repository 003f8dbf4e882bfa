"""Values that several passes need: which are kept in stack arrays, along memory and across it."""

import pytest
import torch
from inductor_checks import check

X = torch.randn(70, 48)


def body(fn, *inputs, **options):
    return check(fn, *inputs, **options).lowered.c.partition("void kernel_0")[2]


@pytest.mark.parametrize("dim", [-1, 0])
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64, torch.bfloat16])
def test_an_exponential_is_computed_once(dim, dtype):
    text = body(lambda x: x.softmax(dim), X.to(dtype))
    assert text.count("exp") == 1
    assert "kept" in text or (dim == -1 and "row" in text)


def test_roundings_and_divisions_are_computed_once():
    x, y = (torch.randn(50, 56).bfloat16() for _ in range(2))
    text = body(
        lambda x, y: (lambda z: (z - z.mean(-1, keepdim=True)) / z.std(-1, keepdim=True))(x / (1 + y.abs())),
        x,
        y,
    )
    # The first element of each row, from which the others are subtracted, is computed beforehand.
    assert text.count("fabsf(") == 2


def test_cheap_values_are_computed_again():
    assert "row" not in body(lambda x: x * 2 - (x * 2).amax(-1, keepdim=True), X)


def test_a_scan_beside_a_reduction_is_computed_once():
    text = body(
        lambda x: (lambda y: y * (y.square().mean(-1, keepdim=True) + 1).rsqrt())(x.cumsum(-1)),
        torch.randn(70, 300),
    )
    assert text.count("state") > 0
    assert "row" in text


def test_a_scan_of_tiles_beside_a_reduction():
    def f(x):
        y = (x.sin().exp() + x.cos()).cummax(-1).values
        return (y.sigmoid() - y.mean(-1, keepdim=True)), y.amin(-1)

    body(f, torch.randn(20, 300))


@pytest.mark.parametrize("rows", [300, 1000, 3000])
def test_tiles_across_memory_become_narrower(rows):
    body(lambda x: (x.softmax(0), x.exp().amax(0)), torch.randn(rows, 130))


def test_several_loops_across_memory():
    body(lambda x: x.softmax(0) + x.exp().sum((0, 1), keepdim=True), torch.randn(9, 30, 41))
    body(lambda x: x.exp() - x.exp().amax((0, 1), keepdim=True), torch.randn(9, 30, 41))


def test_symbolic_rows_keep_nothing():
    body(lambda x: x.softmax(-1), X, symbolic=True, others=[(torch.randn(3, 100),)])


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.float16])
def test_what_an_earlier_pass_stores_is_read_back(dtype):
    def f(x):
        y = torch.nn.functional.silu(x)
        return y, y.floor().sum(0), (y.sum(0) > y).to(x.dtype) + torch.sin(y)

    text = body(f, torch.randn(2000, 128).to(dtype))
    assert text.count("expf(") == 1
    assert "kept" not in text


def test_a_value_that_is_stored_with_fewer_digits_is_not_read_back():
    def f(x):
        y = torch.nn.functional.silu(x)
        return y.bfloat16(), y - y.mean(0)

    assert body(f, torch.randn(2000, 128)).count("expf(") == 2
    assert body(f, torch.randn(200, 128)).count("kept") > 0


def test_a_row_of_halves_is_converted_once_for_all_rows():
    text = body(lambda x, row: (x * row).sum(0), torch.rand(40, 64).bfloat16(), torch.rand(64).bfloat16())
    assert "vector" in text.partition("for (int64_t r0")[0]


@pytest.mark.parametrize(("columns", "most"), [(4096, 1), (40000, 2)])
def test_slow_functions_of_rows_that_fit_into_no_array_are_not_in_every_pass(columns, most):
    def f(x):
        y = (x.abs() + 1).log()
        z = y * y.square().mean(-1, keepdim=True)
        return z, (z - z.mean(-1, keepdim=True)).square().mean(-1)

    assert body(f, torch.randn(20, columns, dtype=torch.float64)).count(" log(") <= most
