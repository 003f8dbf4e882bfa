"""Points of several neighbouring elements: short rows written out, through stack arrays, of every element size."""

import re

import pytest
import torch
from inductor_checks import check

F = torch.nn.functional
DTYPES = [torch.float32, torch.float64, torch.bfloat16, torch.float16, torch.int64, torch.int16, torch.int8]
X = torch.randn(130, 7)


def interleaved(fn, *inputs, **options):
    text = check(fn, *inputs, **options).lowered.c
    assert "split0[" in text or "joined0[" in text


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("columns", [3, 4, 7, 12, 15])
@pytest.mark.parametrize("rows", [64, 77, 200])
def test_rows_of_every_type(rows, columns, dtype):
    x = (torch.rand(rows, columns) * 20 - 10).to(dtype)
    interleaved(lambda x: (x * 2 - x.amax(-1, keepdim=True), x.amin(-1)), x)


@pytest.mark.parametrize(
    "fn",
    [
        lambda x: x.softmax(-1),
        lambda x: torch.var_mean(x, -1),
        lambda x: F.layer_norm(x.exp(), (7,)),
        lambda x: (x - x.argmax(-1, keepdim=True), x.argmin(-1)),
        lambda x: ((x > 0).any(-1), (x > -1).all(-1), x.prod(-1)),
        lambda x: x - x.logsumexp(-1, keepdim=True),
    ],
)
def test_reductions(fn):
    interleaved(fn, X)


@pytest.mark.parametrize(
    "fn",
    [
        lambda x, row, column: F.gelu(x) * row + column,
        lambda x, row, column: torch.cat([x[:, 5:], x[:, :5]], -1).sin() + row,
        lambda x, row, column: (x.flip(-1) * row).exp(),
        lambda x, row, column: F.pad(x, (1, -2)).exp() * column,
        lambda x, row, column: (x.roll(2, -1) * row).sum(-1),
    ],
)
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_points(fn, dtype):
    inputs = [x.to(dtype) for x in (X, torch.randn(7), torch.randn(130, 1))]
    interleaved(fn, *inputs)


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
def test_halves_that_are_no_neighbours(dtype):
    x, column = X.to(dtype), torch.randn(130, 1).to(dtype)
    interleaved(lambda x: x.flip(-1) * 2, x)
    interleaved(lambda x, column: x.roll(3, -1).maximum(column) * 0.5, x.t().contiguous().t(), column)
    text = check(lambda x: (x.flip(-1), x.roll(3, -1)), x).lowered.c
    assert "joined0[" not in text


def test_results_of_other_types_and_gaps():
    interleaved(lambda x: ((x > 0), x.to(torch.bfloat16) * 2, x.sum(-1)), torch.randn(130, 9)[:, 1:8])


def test_a_row_of_nan_and_zeros():
    x = X.clone()
    x[3, 4], x[5], x[6] = torch.nan, -0.0, torch.inf
    interleaved(lambda x: (x.amax(-1), x.amin(-1), x.sum(-1), x.softmax(-1)), x)


PLACES = {
    "of extremes": lambda x, at: (
        x.gather(-1, x.argmax(-1, keepdim=True)) + x.gather(-1, x.argmin(-1)[:, None])
    ),
    "read from memory": lambda x, at: (x.gather(-1, at[:, :1]), x.amin(-1)),
    "for each element": lambda x, at: (x * 2).gather(-1, at) + x.amax(-1, keepdim=True),
    "that count from the end": lambda x, at: x.take_along_dim(at[:, :1] - 4, -1) * x,
}


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("name", PLACES)
def test_elements_at_places_are_chosen_among_those_of_the_row(name, dtype):
    """A read at a place would leave a loop over narrow elements without vectors."""
    x, at = (torch.rand(130, 4) * 20 - 10).to(dtype), torch.randint(0, 4, (130, 4))
    text = check(PLACES[name], x, at).lowered.c
    kernel = text[text.index("kernel_0") :]
    assert "split0[0]" in kernel
    assert "CHECK_INDEX" in kernel or "WRAP_INDEX" in kernel
    assert not re.search(r"a0\[.*v\d+.*\];", kernel)


def test_a_place_outside_of_the_row_raises():
    x, at = X[:, :4], torch.randint(0, 4, (130, 1))
    compiled = check(lambda x, at: x.gather(-1, at) - x.amax(-1, keepdim=True), x, at)
    at[77] = 4
    with pytest.raises(RuntimeError, match="out of bounds"):
        compiled(x, at)


def test_symbolic_rows():
    others = [(torch.randn(7 * n),) for n in (64, 2, 63, 300)]
    interleaved(lambda x: x.view(-1, 7).softmax(-1), torch.randn(70), symbolic=True, others=others)


def test_few_rows_that_lie_across_memory_need_no_loop():
    for rows in (2, 5, 8):
        x = torch.randn(rows, 300)
        text = check(lambda x: (x.var(0), x - x.amax(0), x.softmax(0)), x).lowered.c
        assert "r0" not in text.partition("kernel_0")[2]


def test_many_values_stay_loops():
    def f(x):
        for k in range(12):
            x = torch.where(x > k, x * 0.5, x + x.abs())
        return x.sum(-1)

    assert "r0" in check(f, torch.randn(100, 15)).lowered.c.partition("kernel_0")[2]


def test_checks():
    interleaved(lambda x: x.gather(-1, x.argmax(-1, keepdim=True)) + x.sum(-1, keepdim=True), X)


@pytest.mark.parametrize("cut", [2, 4])
def test_a_join_computes_its_functions_for_their_own_points_only(cut):
    fn = lambda x: torch.cat([F.gelu(F.gelu(x[:, cut:]) / 2), F.gelu(F.gelu(x[:, :cut]) + 1)], 1).relu()
    assert check(fn, X).lowered.c.partition("void kernel_0")[2].count("erff(") == 2 * 7


def test_cheap_points_stay_loops():
    assert "joined0[" not in check(lambda x, row: x + row, X, torch.randn(7)).lowered.c
