"""Loops of few points over several rows: whole vectors, of which the last two overlap."""

import re

import pytest
import torch
from inductor_checks import check, kernels

from fxstack_inductor.options import InductorOptions

OPTIONS = InductorOptions(optimization=3, use_cache=False, grain=16)
F = torch.nn.functional


def busy(x, y):
    """Many operations for each element."""
    z = x * y + (x - y) * 0.5
    return torch.maximum(z, x * 3) * (x + 2).sqrt() + z * z


def overlaps(compiled):
    return "min_int64_t(from, " in compiled.lowered.c


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64, torch.int32])
@pytest.mark.parametrize("size", [7, 8, 9, 15, 16, 17, 28, 31, 47, 127, 129, 140, 1034])
def test_rows_of_any_length(dtype, size):
    x, y = (torch.rand(2, 9, size) * 8).to(dtype)
    column = (torch.rand(9, 1) * 8).to(dtype)
    compiled = check(lambda x, y, column: busy(x, y + column), x, y, column, options=OPTIONS)
    assert overlaps(compiled) == (size in {15, 28, 31, 47, 127, 140})


def test_results_in_the_place_of_an_operand_are_computed_once():
    def in_place(x, column):
        x.copy_(busy(x, column))
        return column + 1

    x, column = torch.rand(9, 28), torch.rand(9, 1)
    compiled = check(in_place, x, column, options=OPTIONS)
    assert any(kernel.read & kernel.written for kernel in kernels(compiled))
    assert not overlaps(compiled)
    changed = x.clone()
    compiled(changed, column)
    torch.testing.assert_close(changed, busy(x, column))


def test_pools_and_borders():
    x, column = torch.randn(3, 4, 28, 28), torch.randn(28, 1)
    x[0, 0, 5, :9], x[1, 2, 27, 27], x[2, 0, 0, 0] = torch.nan, torch.inf, -torch.inf
    compiled = check(lambda x, c: F.max_pool2d((x - c).relu(), 3, 1, 1).exp(), x, column, options=OPTIONS)
    assert overlaps(compiled)
    check(lambda x: F.max_pool2d(x, 3, 2, 1, return_indices=True), x, options=OPTIONS)


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.float64, torch.int16])
def test_extremes_keep_what_is_special(dtype):
    numbers = [0.0, -0.0, 1.0, -3.0]
    numbers += [torch.nan, -torch.nan, torch.inf, -torch.inf] if dtype.is_floating_point else []
    x = torch.tensor(numbers).to(dtype).repeat(40, 1).reshape(-1)
    y = x.reshape(40, -1).T.reshape(-1)

    def extremes(x, y):
        return torch.maximum(x, y), torch.minimum(x, y), torch.where((x > y) | (x != x), x, y)

    check(extremes, x, y, options=OPTIONS)


def test_each_backward_access_with_gaps_has_a_step_of_its_own():
    """GCC makes no vectors of two accesses with one step that it does not know."""
    compiled = check(lambda x: x[..., ::2].flip(-1).exp().sum(0), torch.randn(3, 40, 64), options=OPTIONS)
    assert len(set(re.findall(r"\bback\d+\b", compiled.lowered.c))) == 3
