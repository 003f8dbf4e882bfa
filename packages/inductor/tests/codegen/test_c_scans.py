"""Scans along memory in blocks of rows: whole blocks and rests, tiles, phases, and what is computed beside scans."""

import pytest
import torch
from inductor_checks import FAST, check, kernels, trace

import fxstack_inductor as fi
from fxstack_inductor.codegen.c.strategy import strategy

SCANS = ["cumsum", "cumprod", "cummax", "cummin", "logcumsumexp"]
X, Y = torch.randn(19, 300), torch.randn(19, 300)


def strategies(fn, *inputs, **options):
    return [strategy(k) for k in kernels(check(fn, *inputs, **options))]


def in_blocks(fn, *inputs, **options):
    assert strategies(fn, *inputs, **options) == ["scans_of_rows"]


@pytest.mark.parametrize("name", SCANS)
@pytest.mark.parametrize("shape", [(8, 128), (9, 2), (19, 131), (16, 129), (3, 11, 300)])
def test_blocks_and_rests(name, shape):
    in_blocks(lambda x: getattr(x, name)(-1), torch.randn(shape))


@pytest.mark.parametrize("name", ["cumsum", "cumprod", "cummax"])
@pytest.mark.parametrize("dtype", [torch.float64, torch.bfloat16, torch.float16, torch.int32, torch.uint8])
def test_dtypes(name, dtype):
    check(lambda x: getattr(x, name)(-1), (X * 3).abs().to(dtype))


@pytest.mark.parametrize("rows", [1, 7, 8, 17])
def test_sums_are_eagers_to_the_last_bit(rows):
    x = torch.randn(rows, 500) * 100
    got = check(lambda x: (x * 2).cumsum(-1), x)(x)[0]
    assert torch.equal(got, (x * 2).cumsum(-1))


@pytest.mark.parametrize("shape", [(600, 20), (1021, 7), (5, 1024, 12), (2048, 64)])
def test_near_rows_are_taken_from_streams_far_apart(shape):
    x = torch.randn(shape)
    in_blocks(lambda x: (*x.cummax(-1), x.cumprod(-1)), x.double())
    assert torch.equal(check(lambda x: x.cumsum(-1), x)(x)[0], x.cumsum(-1))
    assert "row + j * 75" in check(lambda x: x.cumsum(-1), torch.randn(600, 20)).lowered.c


def test_ties_and_special_numbers():
    x = torch.randint(-2, 3, (24, 200)).float()
    x[:, 50] = torch.nan
    x[::2, 100] = torch.inf
    x[::3, 20:30] = -torch.inf
    in_blocks(lambda x: (*x.cummax(-1), *x.cummin(-1), x.logcumsumexp(-1)), x)


def test_sums_of_integers_take_one_element_after_the_other():
    x = torch.randint(0, 99, (16, 200))
    assert strategies(lambda x: x.cumsum(-1), x) == ["rows"]
    assert strategies(lambda x: (x * 0.5).exp().long().cumsum(-1), x // 9) == ["rows"]


def test_scans_of_scans():
    in_blocks(lambda x, y: ((x.cumsum(-1).tanh() + x).cummax(-1)[0] * y).cumsum(-1).sigmoid() * x * y, X, Y)


def test_what_rows_and_columns_share():
    def f(x, row, column, positions):
        picked = row[positions].unsqueeze(-1).exp()
        return (x * picked + column).cumsum(-1) * column.tanh() + picked, picked.squeeze(-1)

    found = strategies(f, X, torch.randn(30), torch.randn(300), torch.randint(-30, 30, (19,)))
    assert found[-1] == "scans_of_rows"


def test_gathered_elements():
    places = torch.randint(0, 300, (19, 300))
    compiled = check(lambda x, i: x.gather(-1, i).cumsum(-1).gather(-1, i) + x, X, places)
    places[2, 5] = 300
    with pytest.raises((IndexError, RuntimeError)):
        compiled(X, places)


def test_masks_and_halves():
    in_blocks(lambda x, m: (x.exp() * m).cumsum(-1).sigmoid().half(), X.bfloat16(), Y > 0)


@pytest.mark.parametrize("rows", [1, 19])
def test_reductions_beside_scans(rows):
    def f(x):
        total = x.exp().cumsum(-1)
        return total / total.amax(-1, keepdim=True), total.sum(-1), x.softmax(-1).cumsum(-1)

    check(f, X[:rows].contiguous())
    check(lambda x: (x.sigmoid().cumsum(-1) * 2).sum(-1), torch.randn(rows, 5000))


ACROSS = {
    "sums": (lambda x, y: (x.t() + y).cumsum(-1), "columns"),
    "running extremes": (lambda x, y: (x.t().cummax(-1).values * y).cumsum(-1), "columns"),
    "beside reductions": (lambda x, y: ((s := (x.t() * y).cumsum(-1)), s.argmin(-1), s.amax(-1)), "columns"),
    "sums of integers": (lambda x, y: x.t().long().cumsum(-1) + y.long(), "rows"),
    "sums of integers beside reductions": (
        lambda x, y: ((s := x.t().long().cumsum(-1)) + y.long(), s.amin(-1)),
        "columns",
    ),
}


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64, torch.bfloat16, torch.float16])
@pytest.mark.parametrize("name", ACROSS)
def test_rows_that_lie_across_memory_are_columns(name, dtype):
    """Their elements are neighbours from row to row; results along rows go through transposed copies."""
    program, wanted = ACROSS[name]
    x, y = ((torch.rand(shape) * 4 - 2).round().to(dtype) for shape in ((130, 75), (75, 130)))
    assert strategies(program, x, y)[0] == wanted


def test_a_mutated_input():
    def f(x, y):
        x.copy_((x.exp() + y).cumsum(-1) * x)
        return y.sin().cumprod(-1)

    check(f, X, Y)


def test_symbolic_sizes():
    others = [(torch.randn(s),) for s in ((8, 128), (3, 5), (30, 257), (1, 1))]
    in_blocks(lambda x: x.sigmoid().cumsum(-1) + x, X, symbolic=True, others=others)


@pytest.mark.parametrize("name", ["cumsum", "cumprod", "cummax", "cummin"])
@pytest.mark.parametrize("dtype", [torch.float64, torch.int64])
@pytest.mark.parametrize("shape", [(8, 130), (13, 128), (24, 300), (3, 9, 40)])
def test_rows_of_64_bits(name, dtype, shape):
    x = (torch.randn(shape) * 2).to(dtype)
    for fn in (lambda x: x, lambda x: x[..., ::2], lambda x: x[..., 1::3], lambda x: x * 3):
        check(lambda x: result if not isinstance(result := getattr(fn(x), name)(-1), tuple) else result[0], x)


@pytest.mark.parametrize(
    ("fn", "dtype", "in_turn"),
    [
        (lambda x: x.cumsum(-1), torch.float64, True),
        (lambda x: x[:, ::2].cumprod(-1), torch.float64, True),
        (lambda x: x.cummax(-1).values, torch.int64, True),
        (lambda x: x.cummax(-1).values, torch.float64, False),
        (lambda x: x.cummax(-1), torch.int64, False),
        (lambda x: x.cumsum(-1), torch.float32, False),
        (lambda x: x.exp().cumsum(-1), torch.float64, False),
    ],
)
def test_sums_of_64_bits_advance_in_turn(fn, dtype, in_turn):
    text = check(fn, torch.randn(16, 300).to(dtype)).lowered.c.partition("void kernel_0")[2]
    assert ("#pragma GCC unroll 8" in text) == in_turn
    assert ("transpose_" in text) != in_turn


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64, torch.bfloat16])
@pytest.mark.parametrize("columns", [10, 13, 21, 45, 100])
def test_few_columns_of_slow_functions(columns, dtype):
    x = torch.rand(90, columns).to(dtype)
    check(lambda x: (x.tanh().cumsum(0), x.logcumsumexp(0), x.sigmoid().cummax(0).values), x)


@pytest.mark.parametrize(
    ("dtype", "columns"), [(torch.float32, 21), (torch.float64, 45), (torch.bfloat16, 21)]
)
def test_scans_of_slow_functions_go_on_beyond_the_columns(dtype, columns):
    x = torch.rand(9000, columns).to(dtype)
    text = fi.lower(trace(lambda x: x.tanh().cumsum(0), x), options=FAST).c
    assert "for (int64_t j = 0; j < lanes; j++) { state" in text
