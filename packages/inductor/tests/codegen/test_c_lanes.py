"""Reductions in lanes: rows of every multiple, extremes with NaN and infinities, blocks of long rows."""

import dataclasses

import pytest
import torch
from inductor_checks import FAST, check, trace

import fxstack_inductor as fi

VECTOR = dataclasses.replace(FAST, optimization=3)
WIDTHS = (15, 16, 17, 28, 32, 48, 64, 100, 128, 192, 255, 257, 300, 999)


def everything(x):
    """Sums, extremes and products of rows, with second passes."""
    return x.sum(-1), x.amax(-1), x.amin(-1), x.softmax(-1), (x * 0.1).prod(-1), x.var(-1)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64, torch.bfloat16])
def test_rows_of_any_length(dtype):
    rows = [torch.randn(3, n).to(dtype) for n in WIDTHS]
    check(lambda *x: tuple(y for v in x for y in everything(v)), *rows, options=VECTOR)


def test_the_last_step_of_a_row_with_a_rest_repeats_elements():
    text = fi.lower(trace(lambda x: x * 2 - x.exp().sum(-1, True), torch.randn(9, 100)), options=FAST).c
    assert text.count("min_int64_t(from, 100 - 16)") == 2
    assert "(int32_t)j < before ? 0 : " in text
    assert "fold_sum_float(lane" in text
    halves = fi.lower(trace(lambda x: x * 2 - x.amax(-1, True), torch.randn(9, 100).bfloat16()), options=FAST)
    assert "read_bf16(half0, a0 + p0*100 + at, 16)" in halves.c


@pytest.mark.parametrize("program", [lambda x: x[:, ::5].sum(-1), lambda x: x[:, :4099].sum(-1)])
def test_rows_with_gaps_and_long_rows_repeat_nothing(program):
    text = fi.lower(trace(lambda x: program(x), torch.randn(9, 4110)), options=FAST).c
    assert "min_int64_t(from" not in text


@pytest.mark.parametrize("special", [torch.nan, torch.inf, -torch.inf, -0.0])
def test_extremes_keep_what_is_special(special):
    x = torch.randn(48, 48)
    x[torch.arange(48), torch.arange(48)] = special
    check(lambda x: (x.amax(-1), x.amin(-1), x.sum(-1)), x, options=VECTOR)


@pytest.mark.parametrize("dtype", [torch.int64, torch.int32, torch.int8, torch.uint8, torch.bool])
def test_whole_numbers(dtype):
    x = torch.randint(0, 2 if dtype is torch.bool else 100, (5, 64)).to(dtype)
    check(lambda x: (x.sum(-1), x.amax(-1), x.amin(-1), x.any(-1), x.all(-1)), x, options=VECTOR)


def test_several_inner_loops_and_blocks():
    x = torch.randn(4, 9, 32, 16)
    norm = torch.nn.functional.group_norm
    check(lambda x: (x.sum((0, 2, 3)), x.amax((0, 2, 3)), norm(x, 3)), x, options=VECTOR)
    check(lambda x: (x.sum(-1), x.mean(-1)), torch.randn(9, 6144), options=VECTOR)


def test_a_row_of_known_length_is_folded_in_halves():
    text = fi.lower(trace(lambda x: x.sum(-1), torch.randn(9, 128)), options=FAST).c
    assert "fold_sum_float(lane" in text
    assert "reduction(" not in text
