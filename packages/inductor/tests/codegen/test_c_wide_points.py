"""Independent points of short rows: long rows of many rows, of every element size and kind of operand."""

from dataclasses import replace

import pytest
import torch
from inductor_checks import FAST, check, kernels

from fxstack_inductor.codegen.c.strategy import strategy

OPTIONS = replace(FAST, grain=16)
DTYPES = [torch.float32, torch.bfloat16, torch.float16, torch.int32, torch.int8]
PROGRAMS = {
    "a row and a column": lambda x, row, column, middle: x * row + column,
    "rows between loops": lambda x, row, column, middle: x - middle,
    "conditions": lambda x, row, column, middle: torch.where(x > row, column, middle) + x,
    "truth": lambda x, row, column, middle: x > middle,
    "floats": lambda x, row, column, middle: x.maximum(column).float(),
    "a column alone": lambda x, row, column, middle: column.expand_as(x) + 0,
    "a division": lambda x, row, column, middle: x / (row.abs() + 1) - column,
}


def operands(*shape, dtype=torch.float32):
    sizes = shape, shape[-1:], (*shape[:-1], 1), (*shape[:-2], 1, shape[-1])
    return [(torch.rand(size) * 8 - 4).to(dtype) for size in sizes]


def strategies(fn, *inputs):
    return [strategy(k) for k in kernels(check(fn, *inputs, options=OPTIONS))]


@pytest.mark.parametrize("threads", [1, 3])
@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("shape", [(65, 7), (3, 130, 11)])
def test_long_rows_of_every_type(shape, dtype, threads):
    before = torch.get_num_threads()
    torch.set_num_threads(threads)
    try:
        fn = lambda *inputs: tuple(program(*inputs) for program in PROGRAMS.values())
        assert strategies(fn, *operands(*shape, dtype=dtype)) == ["wide_points"]
    finally:
        torch.set_num_threads(before)


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_few_rows_of_slow_functions(dtype):
    x, row, *_ = operands(12, 9, dtype=dtype)
    assert strategies(lambda x, row: (x * row / 8).exp(), x, row) == ["wide_points"]


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("columns", [3, 7, 14, 23, 28])
def test_few_rows(columns, dtype):
    """Arithmetic of words and bytes stays in vectors of one row; booleans and halves do not, nor divisions of few columns."""
    half = dtype in {torch.bfloat16, torch.float16}
    inputs = [t.abs() for t in operands(3, 9, columns, dtype=dtype)]  # sums that cancel differ in halves
    sums = lambda x, row, column, middle: (x * row + column) * middle
    assert (strategies(sums, *inputs) == ["wide_points"]) == half
    chosen = lambda x, row, column, middle: torch.where(x > row, column, middle)
    assert (strategies(chosen, *inputs) == ["wide_points"]) == (half or columns < 24)
    if dtype.is_floating_point:
        divided = lambda x, row, column, middle: x / (1 + row.abs()) / (1 + column.abs())
        assert (strategies(divided, *inputs) == ["wide_points"]) == (half or columns < 8)


@pytest.mark.parametrize(
    "fn",
    [
        lambda x, row: x[:, torch.arange(7).flip(0)] + row,
        lambda x, row: x[:9] * row,
        lambda x, row: x.double() * row,
        lambda x, row: x.T.contiguous().T[:, :6] + row[:6],
    ],
)
def test_other_points(fn):
    assert "wide_points" not in strategies(fn, torch.randn(300, 7), torch.randn(7))


def test_threads_share_rows_where_blocks_of_rows_share_cache_lines():
    x, _, _, middle = operands(8, 1001, 11)
    one = check(lambda x, y: x.exp() * y, x, middle, options=OPTIONS).lowered.c
    assert "_alone(" in one and "GOMP_parallel(kernel_0_part_member" in one
    assert strategies(lambda x, y: x.log1p() * y, x.abs(), middle) == ["points"]


COPIES = [
    lambda x, row, column: row.expand_as(x).clone(),
    lambda x, row, column: column.expand_as(x).clone(),
    lambda x, row, column: column.float().expand_as(x).to(column.dtype),
    lambda x, row, column: (row.expand_as(x).clone(), x * row + column),
    lambda x, row, column: ((x + column).exp().sum(0), column.expand_as(x).clone(), x * row),
    lambda x, row, column: (x.clone(), x + column),
]


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.float16])
@pytest.mark.parametrize("fn", COPIES)
def test_copies_of_rows_and_columns(fn, dtype):
    check(fn, *operands(130, 7, dtype=dtype)[:3])
