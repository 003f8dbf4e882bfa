"""Reductions along short rows: blocks of rows as lanes of vectors, of every element size and layout."""

import pytest
import torch
from inductor_checks import check, kernels

from fxstack_inductor.codegen.c.strategy import strategy

F = torch.nn.functional
DTYPES = [torch.float32, torch.float64, torch.bfloat16, torch.float16, torch.int64, torch.int16, torch.int8]


def short_rows(fn, *inputs, **options):
    compiled = check(fn, *inputs, **options)
    assert "short_rows" in [strategy(k) for k in kernels(compiled)]
    return compiled


def rows(*shape, dtype=torch.float32):
    return (torch.rand(shape) * 20 - 10).to(dtype)


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("shape", [(16, 13), (63, 13), (64, 13), (200, 15)])
def test_rows_of_every_type(shape, dtype):
    short_rows(lambda x: (x * 2 - x.amax(-1, True), x.amin(-1), x.argmax(-1)), rows(*shape, dtype=dtype))


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])
@pytest.mark.parametrize("size", [64, 112])
def test_whole_vectors_of_halves_stay_along_their_rows(size, dtype):
    compiled = check(lambda x: x - x.amax(-1, True), rows(150, size, dtype=dtype))
    assert [strategy(k) for k in kernels(compiled)] == ["rows"]


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
@pytest.mark.parametrize("size", [11, 13, 15])
@pytest.mark.parametrize(
    "fn",
    [
        lambda x: x.softmax(-1),
        lambda x: (x.log_softmax(-1), F.gelu(x)),
        lambda x: (x.var(-1), x.std(-1), x.logsumexp(-1)),
        lambda x: ((x - x.argmax(-1, True)).exp(), x.argmin(-1), (x > 0).any(-1), x.prod(-1)),
    ],
)
def test_passes(fn, size, dtype):
    short_rows(fn, torch.randn(150, size).to(dtype))


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
@pytest.mark.parametrize(
    "fn",
    [
        lambda x, y, row, column: (x + y).log_softmax(-1) * row * column,
        lambda x, y, row, column: ((x.exp() * row).amax(-1), (y * column).amin(-1)),
        lambda x, y, row, column: (x.flip(-1) * y).logsumexp(-1),
        lambda x, y, row, column: (x.gather(-1, y.argmax(-1, True)), (x - y).logsumexp(-1, True)),
    ],
)
@pytest.mark.parametrize(
    "layout", [lambda x: x, lambda x: x[:, 1:-1], lambda x: x[:, ::2], lambda x: x.t().contiguous().t()]
)
def test_layouts(layout, fn, dtype):
    x, y, column = layout(torch.randn(150, 40)), torch.randn(150, 40), torch.randn(150, 1)
    y = y[:, : x.shape[1]]
    check(fn, *(a.to(dtype) for a in (x, y, torch.randn(x.shape[1]), column)))


def test_slow_functions_of_very_short_rows():
    def fn(x, row):
        for _ in range(6):
            x = (x.tanh() + x.erf() * row).sigmoid()
        return x.argmin(-1), x.sin()

    short_rows(fn, torch.randn(150, 7), torch.randn(7))
    points = check(lambda x, row: fn(x, row)[1] * row.exp(), torch.randn(150, 7)[:, 1:], torch.randn(6))
    assert "joined0[6][" in points.lowered.c


def test_two_outer_loops():
    short_rows(lambda x: x.log_softmax(-1), torch.randn(3, 70, 30)[:, :, :28])
    short_rows(lambda x: x.log_softmax(-1), torch.randn(40, 3, 30)[:, :, :28])


def test_a_mutated_operand():
    def fn(x, y):
        y.add_((x + y).logsumexp(-1, keepdim=True))
        return y * 2

    check(fn, torch.randn(150, 28), torch.randn(150, 28))
    check(lambda x: x.copy_(x.log_softmax(-1)), torch.randn(150, 28))


def test_a_bad_index_is_an_error():
    compiled = check(
        lambda x, i: x.gather(-1, i) + x.logsumexp(-1, True),
        torch.randn(150, 28),
        torch.randint(28, (150, 1)),
    )
    with pytest.raises((IndexError, RuntimeError), match="out of bounds"):
        compiled(torch.randn(150, 28), torch.full((150, 1), 28))


def test_symbolic_rows():
    others = [(torch.randn(n, 28),) for n in (1, 8, 100)]
    check(lambda x: x.log_softmax(-1), *others[2], symbolic=True, others=others)


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
@pytest.mark.parametrize("size", [5, 7, 14, 33])
@pytest.mark.parametrize(
    "fn",
    [
        lambda x: (x.cumsum(-1) - x.amax(-1, True), x.sum(-1)),
        lambda x: (x.tanh().cumprod(-1), x.logcumsumexp(-1)),
        lambda x: (*x.cummax(-1), (x.sigmoid() + x.erf().abs()).cumsum(-1).sum(-1)),
    ],
)
def test_scans(fn, size, dtype):
    short_rows(fn, torch.randn(150, size).to(dtype))
    check(fn, torch.randn(70, size, dtype=torch.float64))


def test_plain_scans_without_a_rest_are_blocks_of_rows():
    for fn in (lambda x: x.cumsum(-1), lambda x: x.exp().cumsum(-1)):
        assert [strategy(k) for k in kernels(check(fn, torch.randn(150, 32)))] == ["scans_of_rows"]


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.int64])
def test_one_operand_along_short_rows_beside_a_reduction_across_them(dtype):
    x, y, column = (rows(*shape, dtype=dtype) for shape in ((9, 32, 14, 14), (9, 32, 14, 14), (9, 32, 14, 1)))
    compiled = check(lambda x, y, c: ((x * c).maximum(y), y.amax(2, True) * x), x, y, column)
    assert [strategy(k) for k in kernels(compiled)] == ["columns"]


@pytest.mark.parametrize("dtype", [torch.float32, torch.int64])
def test_an_operand_along_columns_beside_a_result_along_rows_stays_where_it_is(dtype):
    x = rows(9, 32, 14, 14, dtype=dtype).transpose(-1, -2)
    assert [strategy(k) for k in kernels(check(lambda x: x.cumsum(-1).contiguous() * 2, x))] != ["short_rows"]


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64, torch.bfloat16, torch.int64])
@pytest.mark.parametrize("size", [5, 10, 14, 28, 56, 100])
def test_rows_of_transposed_images(size, dtype):
    x = rows(40, size, size, dtype=dtype).transpose(-1, -2)
    floats = (lambda x: x.softmax(-1), lambda x: x.std(-1), lambda x: x.exp().cumsum(-1).contiguous())
    for fn in (
        lambda x: x - x.amax(-1, True),
        lambda x: x.cumsum(-1) * 2,
        *(floats if x.is_floating_point() else ()),
    ):
        check(fn, x)


@pytest.mark.parametrize(
    ("fn", "size", "strategies"),
    [
        (lambda x: x.softmax(-1), 14, {"columns"}),
        (lambda x: x.softmax(-1), 56, {"columns"}),
        (lambda x: x - x.amax(-1, True), 14, {"columns"}),
    ],
)
def test_short_rows_across_memory_are_columns(fn, size, strategies):
    x = torch.randn(600, size, size).transpose(-1, -2)
    assert {strategy(k) for k in kernels(check(fn, x)) if k.inner} == strategies
