"""Values that every row has in common, such as places read from memory: computed once, into arrays."""

import re

import pytest
import torch
from inductor_checks import check, trace

import fxstack_inductor as fi
from fxstack_inductor.codegen.c.text import STACK
from fxstack_inductor.options import InductorOptions

OPTIONS = InductorOptions(optimization=3, use_cache=False, grain=16)
ORDER = torch.randperm(33)
X, ROW = torch.randn(4, 9, 33), torch.randn(33)
PROGRAMS = {
    "places": (lambda x, row, i: x[..., i] + row, True),
    "places of places": (lambda x, row, i: x[..., i][..., i] * row[i], True),
    "negative places": (lambda x, row, i: x[..., i - 33] - 1, True),
    "functions of a row": (lambda x, row, i: x * row.sin() + row.exp(), False),
    "conditions of a row": (lambda x, row, i: torch.where(row.sin() > 0, x, x[..., i]), True),
    "places that differ from row to row": (lambda x, row, i: x.gather(-1, i.expand(4, 9, 33) + 0), True),
    "places in a rolled row": (lambda x, row, i: x.roll(3, -1)[..., i] + x.roll(-3, -1)[..., i] * 2, True),
    "places in a joined row": (lambda x, row, i: torch.cat([x[..., 5:], x[..., :5]], -1)[..., i] - x, True),
    "a joined row": (lambda x, row, i: torch.cat([x[..., i], x * row.tanh()], -1), True),
    "a sum over rows": (lambda x, row, i: (x[..., i] * row[i]).norm(dim=1), False),
    "few rows": (lambda x, row, i: x[0, :4][..., i] + row, False),
    "plain rows": (lambda x, row, i: x * row + 1, False),
}


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64, torch.int64])
@pytest.mark.parametrize("name", PROGRAMS)
def test_values_are_eagers(name, dtype):
    program, _ = PROGRAMS[name]
    if dtype is torch.int64 and name == "a sum over rows":
        pytest.skip("eager has no norm of integers")
    x, row = ((t * 4).to(dtype) for t in (X, ROW))
    check(program, x, row, ORDER, options=OPTIONS)


@pytest.mark.parametrize("name", PROGRAMS)
def test_which_have_arrays(name):
    program, wanted = PROGRAMS[name]
    compiled = check(program, X, ROW, ORDER, options=OPTIONS)
    assert bool(re.search(r"(float|int32_t) a\d+\[\d+\];", compiled.lowered.c)) == wanted


REDUCED = {
    "sums": lambda x, row, i: (x[..., i].sum(-1), (y := (x[..., i] * row).abs()).amax(-1, True) + y),
    "softmax": lambda x, row, i: (x[..., i] + row.sin()).softmax(-1),
    "positions": lambda x, row, i: x[..., i].argmax(-1),
    "deviations": lambda x, row, i: (x[..., i].std(-1), x[..., i] - row),
}


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64, torch.bfloat16])
@pytest.mark.parametrize("name", REDUCED)
def test_rows_with_reductions(name, dtype):
    x, row, order = torch.randn(3, 9, 300).to(dtype), torch.randn(300).to(dtype), torch.randperm(300)
    compiled = check(REDUCED[name], x, row, order, options=OPTIONS)
    assert re.search(r"int32_t a\d+\[300\];", compiled.lowered.c)


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])
def test_halves(dtype):
    check(lambda x, i: (x[..., i].abs(), -x), X.to(dtype), ORDER, options=OPTIONS)


def test_a_bad_place_raises():
    compiled = check(lambda x, i: x[..., i] + 1, X, ORDER, options=OPTIONS)
    with pytest.raises(IndexError, match="out of bounds"):
        compiled(X, torch.full((33,), 33))
    compiled = check(lambda x, i: x[..., i].sum(-1), X, ORDER, options=OPTIONS)
    with pytest.raises(IndexError, match="out of bounds"):
        compiled(X, torch.full((33,), 33))


@pytest.mark.parametrize(
    ("dtype", "narrow"), [(torch.float32, True), (torch.int32, True), (torch.float64, False)]
)
def test_places_of_small_elements_have_32_bits(dtype, narrow):
    compiled = check(lambda x, i: x.abs()[..., i], X.to(dtype), ORDER, options=OPTIONS)
    assert ("(int32_t)v" in compiled.lowered.c) == narrow


@pytest.mark.parametrize(("dtype", "cast"), [(torch.float32, "(int32_t)"), (torch.int64, "")])
def test_places_in_a_rolled_row_take_no_division(dtype, cast):
    compiled = check(lambda x, i: x.roll(3, -1)[..., i] + 1, (X * 4).to(dtype), ORDER, options=OPTIONS)
    text = compiled.lowered.c.partition("void kernel_0")[2]
    assert re.search(r"\[" + re.escape(cast) + r"wrapped_int64_t\(v\d+ \+ -3, 33\)", text)
    assert "remainder" not in text


LOOPS = {
    "differ along columns": (lambda x, i: x.abs().gather(0, i[:5, None] % 5 + 0 * x[:5].long()), True),
    "choose a value of a short row": (lambda x, i: x.gather(1, x.argmax(1, keepdim=True)) + x, False),
    "are those of a whole row": (lambda x, i: x[i % 9].exp() + 1, False),
    "come of a reduction along the loop": (lambda x, i: x.abs()[x.sum(1).argmax()] * x, False),
}


@pytest.mark.parametrize("name", LOOPS)
def test_loops_along_which_places_differ_have_32_bits(name):
    """An access with a loop in 32 bits has no known step: a place that is the same for all points has neighbours beside it."""
    program, narrow = LOOPS[name]
    compiled = check(program, X.reshape(-1, 9)[:, :7], ORDER, options=OPTIONS)
    assert ("[(int32_t)p" in compiled.lowered.c) == narrow


@pytest.mark.parametrize(("size", "narrow"), [(2**31 + 8, False), (2**31 - 8, True)])
def test_places_in_large_tensors_keep_64_bits(size, narrow):
    x = torch.empty(size, dtype=torch.uint8)  # no page of it is touched
    compiled = fi.compile_graph(trace(lambda x, i: x[i] + 1, x, ORDER), (x, ORDER), OPTIONS)
    assert ("(int32_t)v" in compiled.lowered.c) == narrow


def test_arrays_fit_the_smallest_stack_of_a_thread():
    orders = [torch.randperm(2048) for _ in range(36)]
    x = torch.randn(9, 2048)
    compiled = check(lambda x, *orders: sum(x[:, i] for i in orders), x, *orders, options=OPTIONS)
    arrays = re.findall(r"int32_t a\d+\[(\d+)\];", compiled.lowered.c)
    assert 0 < len(arrays) * 2048 * 4 <= STACK


HALF = torch.full((33,), 2**30 + 20)
OVER_HALF = {
    "a place behind many": (lambda x, i: x[:, i + 2**30] + x[:, 2**31 - 99 :][:, i], (1, 2**31 + 8), ORDER),
    "two places": (lambda x, i: x.as_strided((2**30 + 32,) * 2, (1, 1))[i, i] + 1, (2**31 + 64,), HALF),
}


@pytest.mark.parametrize("name", OVER_HALF)
def test_sums_of_places_are_not_added_in_32_bits(name):
    program, shape, places = OVER_HALF[name]
    x = torch.zeros(shape, dtype=torch.uint8)  # few pages of it are touched
    compiled = fi.compile_graph(trace(program, x, places), (x, places), OPTIONS)
    assert torch.equal(compiled(x, places)[0], program(x, places))
