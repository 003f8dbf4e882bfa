"""Reductions across memory over few columns: long rows of many rows, of every element size and kind of operand."""

import pytest
import torch
from inductor_checks import check

F = torch.nn.functional
DTYPES = [torch.float32, torch.bfloat16, torch.float16, torch.int32, torch.int8]


def wide(fn, *inputs, **options):
    compiled = check(fn, *inputs, **options)
    assert "elements = count *" in compiled.lowered.c
    return compiled


def narrow(fn, *inputs):
    assert "elements = count *" not in check(fn, *inputs).lowered.c


def rows(*shape, dtype=torch.float32):
    return (torch.rand(shape) * 8 - 4).to(dtype)


@pytest.mark.parametrize("sign", [1, -1])
@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("shape", [(64, 7), (65, 7), (1000, 7), (130, 31), (200, 2), (3, 130, 9)])
def test_rows_of_every_type(shape, dtype, sign):
    x = (sign * (torch.rand(shape) * 8 + 1)).to(dtype)  # a zero would be an extreme
    wide(lambda x: (x.amax(-2), x.maximum(x.amin(-2, True)) * 2), x)


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.float16])
@pytest.mark.parametrize("count", [65, 69, 300])
def test_the_last_rows_of_slow_functions(count, dtype):
    x = torch.rand(count, 7) / 4 - 4
    got = wide(lambda x: (x.exp().amin(0), x.exp().sum(0), x.tanh().amax(0)), x.to(dtype))(x.to(dtype))
    exact = x.to(dtype).double()
    want = exact.exp().amin(0), exact.exp().sum(0), exact.tanh().amax(0)
    torch.testing.assert_close([a.double() for a in got], [*want], rtol=5e-3, atol=0)


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.float16])
@pytest.mark.parametrize("columns", [17, 24, 28, 31])
def test_few_rows_of_more_columns_than_a_vector(columns, dtype):
    wide(lambda x: (x * x.square().mean(1, keepdim=True)).exp(), rows(5, 12, columns, dtype=dtype) / 4)


@pytest.mark.parametrize("dtype", [torch.float64, torch.int64])
def test_rows_of_wide_elements(dtype):
    x = rows(300, 7, dtype=dtype)
    wide(lambda x: (x.sum(0), x * 2 - x.amax(0)), x)
    narrow(lambda x: (x.sum(0), x * 2 - x.amax(0)), rows(300, 17, dtype=dtype))


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
@pytest.mark.parametrize(
    "fn",
    [
        lambda x: x.softmax(0),
        lambda x: (x.log_softmax(0), F.gelu(x)),
        lambda x: (x.var(0), x.std(0), x.logsumexp(0)),
        lambda x: ((x > 1).any(0), (x > -9).all(0), x.clamp(0.9, 1.1).prod(0)),
        lambda x: (x.tanh().norm(dim=0, keepdim=True) + x, x.isnan().any(0)),
        lambda x: torch.where(x > x.mean(0), x, x.amax(0).exp()),
    ],
)
@pytest.mark.parametrize("size", [3, 7, 28])
def test_passes(fn, size, dtype):
    check(fn, rows(300, size, dtype=dtype))


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
@pytest.mark.parametrize(
    "fn",
    [
        lambda x, row, column: (x + row).log_softmax(0) * column,
        lambda x, row, column: ((x.exp() * column).amax(0), (x * row).amin(0)),
        lambda x, row, column: (x.maximum(column.exp()).sum(0), (x / (1 + row.abs())).amax(0)),
        lambda x, row, column: torch.where(row > 0, x, column).logsumexp(0),
        lambda x, row, column: torch.where(column > 0, x, row).amax(0),
    ],
)
def test_operands_of_columns_and_of_rows(fn, dtype):
    for size in (5, 7, 14):
        wide(fn, *(a.to(dtype) for a in (rows(300, size), torch.randn(size), torch.randn(300, 1))))


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
@pytest.mark.parametrize("size", [9, 14, 15])
def test_few_rows_of_slow_functions(size, dtype):
    x = rows(3, 5, size, size, dtype=dtype)
    wide(lambda x: (x.tanh(), x.tanh().amax(2, keepdim=True)), x)
    wide(lambda x: x.softmax(2), x)
    narrow(lambda x: (x * 2, (x * 2).amax(2, keepdim=True)), x)


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.float16, torch.int8])
@pytest.mark.parametrize("size", [9, 14, 15])
def test_results_apart(size, dtype):
    """Results that are neighbours along another loop: halves through arrays, which whole vectors fill."""
    x = rows(3, 20, 70, size, dtype=dtype)
    compiled = wide(lambda x: (y := x.sign() * 3, y.amax(2), y.permute(0, 2, 3, 1).contiguous())[1:], x)
    assert ("narrow0[" in compiled.lowered.c) == (dtype is torch.float16)
    if dtype is torch.bfloat16:
        wide(lambda x: (y := x.tanh(), y.amax(2), y.permute(0, 2, 3, 1).contiguous())[1:], x)


def test_nan_and_infinities():
    x = rows(200, 7)
    x[3, 2], x[100, 2], x[150, 4], x[:, 5] = float("nan"), float("inf"), float("inf"), float("-inf")
    wide(lambda x: (x.amax(0), x.amin(0), x.logsumexp(0), x.softmax(0)), x)


def test_a_sum_of_many_rows_is_as_exact_as_one_in_double():
    x = torch.rand(40_000, 7) + 1
    got = wide(lambda x: x.sum(0), x)(x)[0]
    torch.testing.assert_close(got.double(), x.double().sum(0), rtol=2e-7, atol=0)


def test_two_loops_of_rows():
    x = torch.randn(4, 5, 70, 7)
    wide(lambda x: x.sum((0, 2)), x)
    check(lambda x: (x - x.amax((0, 2), keepdim=True), (x * x[0, 0, :, :1]).sum((0, 2))), x)


@pytest.mark.parametrize(
    "layout",
    [lambda x: x[:, 1:-1], lambda x: x[:, ::2], lambda x: x.t().contiguous().t(), lambda x: x.flip(0)],
)
def test_layouts_with_gaps_go_row_by_row(layout):
    check(lambda x: (x.amax(0), x - x.sum(0)), layout(torch.randn(300, 9)))


def test_an_operand_is_overwritten():
    check(lambda x: x.copy_(x.log_softmax(0)), torch.randn(150, 7))
    check(lambda x: x.sub_(x.amax(0)).exp(), torch.randn(150, 7))


def test_a_bad_index_is_an_error():
    index = torch.randint(9, (200, 1))
    compiled = wide(lambda x, t, i: (x * t[i]).sum(0), rows(200, 7), torch.randn(9), index)
    index[150] = 9
    with pytest.raises((IndexError, RuntimeError), match="out of bounds"):
        compiled(rows(200, 7), torch.randn(9), index)


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
@pytest.mark.parametrize("columns", [9, 15])
def test_kept_values_have_room_for_whole_vectors(columns, dtype):
    compiled = wide(lambda x: x.softmax(1), rows(3, 9, columns, dtype=dtype))
    assert f"[9 * {columns} + 15];" in compiled.lowered.c
