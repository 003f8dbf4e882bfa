"""Loops of whole vectors that go on beyond their rows: columns and points with a rest, in arrays on the stack."""

import re

import pytest
import torch
from inductor_checks import FAST, check, trace

import fxstack_inductor as fi

DTYPES = [torch.float32, torch.float64, torch.bfloat16, torch.float16]
SIZES = [9, 15, 17, 33, 45, 60, 61, 77, 100, 205, 255, 257]
BEYOND = "const int64_t lanes = (width + 15) / 16 * 16;"


def t(dtype, *shape):
    """Numbers above 0, of which all functions have values."""
    return (torch.rand(shape, generator=torch.Generator().manual_seed(7)) * 4 + 0.1).to(dtype)


COLUMNS = {
    "softmax": lambda x: x.softmax(0),
    "logarithms": lambda x: (x.log().sum(0), x.log() + x[0], x.logsumexp(0)),
    "positions": lambda x: (x.sigmoid() * 2).argmax(0),
    "extremes and deviations": lambda x: (x.exp().amin(0), x.std(0), (x - x.mean(0)).tanh()),
    "rows beside": lambda x: (x * x[:, :1] * 0.1).exp().sum(0),
    "steps": lambda x: (x[:, ::2].exp().sum(0), x[:, 1:].exp().amax(0)),
    "places": lambda x: x[:, torch.arange(x.shape[1]).flip(0)].exp().sum(0),
    "several loops": lambda x: x.reshape(4, -1, x.shape[1]).exp().sum((0, 1)),
}
POINTS = {
    "functions": lambda x: x.tanh() * x[:, :1],
    "two results": lambda x: (x.exp() * x[:, :1], x.log() + x[:, :1]),
    "booleans": lambda x: (x.exp() * x[:, :1] > 2, x.sin() * x[:, :1]),
    "moved": lambda x: x.roll(3, -1).sigmoid() * x[:, :1],
}


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("name", COLUMNS)
def test_columns(name, dtype):
    for size in SIZES:
        check(COLUMNS[name], t(dtype, 320, size), options=FAST)


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("name", POINTS)
def test_points(name, dtype):
    for size in SIZES:
        check(POINTS[name], t(dtype, 7, size), options=FAST)


@pytest.mark.parametrize(
    ("dtype", "columns", "beyond"),
    [
        (torch.float32, 60, True),
        (torch.float32, 64, False),
        (torch.float32, 40, False),
        (torch.float32, 57, False),
        (torch.float32, 257, False),
        (torch.float64, 45, True),
        (torch.float64, 60, False),
        (torch.float64, 93, True),
        (torch.float64, 33, False),
        (torch.bfloat16, 60, True),
    ],
)
def test_vectors_go_on_where_single_columns_take_long(dtype, columns, beyond):
    text = fi.lower(trace(lambda x: x.exp().sum(0), t(dtype, 5000, columns)), options=FAST).c
    assert (BEYOND in text) == beyond
    assert ("j < lanes; j++) {" in text) == beyond


def test_plain_arithmetic_of_columns_keeps_its_rest():
    text = fi.lower(trace(lambda x: (x * 2).sum(0), t(torch.float32, 5000, 60)), options=FAST).c
    assert BEYOND not in text


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("rows", [3, 14, 16, 25, 49, 60])
@pytest.mark.parametrize("columns", [9, 10, 13, 15])
def test_rows_of_one_vector(columns, rows, dtype):
    check(lambda x: (x.sum(1), x / x.amax(1, True), x.std(1)), t(dtype, 20, rows, columns), options=FAST)


@pytest.mark.parametrize(("rows", "near"), [(16, 0), (25, 5), (49, 7), (48, 8), (47, 0), (300, 0)])
def test_rows_of_one_vector_are_written_out(rows, near):
    text = fi.lower(trace(lambda x: x.sum(1), t(torch.float32, 20, rows, 19)[..., :14]), options=FAST).c
    assert (f"r0 < near + {near}; r0++" in text) == bool(near)
    assert (BEYOND in text) == (rows in {16, 25, 48, 49})


def test_arrays_go_on_with_the_first_column():
    program = lambda x, y: ((x * (y + 1)).log().sum(0), (x / x.amax(0)).log())  # noqa: E731
    text = fi.lower(trace(program, t(torch.float32, 5000, 60), t(torch.float32, 60)), options=FAST).c
    for array in ("vector", "sum"):
        assert re.search(rf"j < lanes; j\+\+\) {array}(\d+)\[j\] = {array}\1\[0\];", text)


@pytest.mark.parametrize("function", [torch.lgamma, lambda x: x.remainder(3)])
def test_functions_without_vectors_keep_the_rest(function):
    text = fi.lower(trace(lambda x: function(x).sum(0), t(torch.float32, 5000, 60)), options=FAST).c
    assert BEYOND not in text


def test_memory_behind_the_results_is_left_alone():
    """Results of 60 columns are rows of wider memory, whose other columns keep what they have."""
    wide = torch.full((5000, 77), 7.0)

    def program(x, wide):
        wide[:, :60].copy_(x.softmax(0))
        return wide.sum()

    compiled = check(program, t(torch.float32, 5000, 60), wide.clone(), options=FAST)
    compiled(t(torch.float32, 5000, 60), wide)
    assert torch.equal(wide[:, 60:], torch.full((5000, 17), 7.0))
