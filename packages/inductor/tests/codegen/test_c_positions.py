"""Positions of extremes across memory: found beside the extremes, in one pass, as eager finds them."""

import re

import pytest
import torch
from inductor_checks import FAST, check, trace

from fxstack_inductor import compile_graph

DTYPES = [
    *(torch.float32, torch.float64, torch.bfloat16, torch.float16),
    *(torch.int64, torch.int32, torch.int8, torch.uint8),
]
PROGRAMS = {
    "positions": lambda x: (x.argmax(0), x.argmin(0)),
    "extremes and positions": lambda x: (*x.max(0), *x.min(0)),
    "positions and elements": lambda x: x.gather(0, x.argmax(0, keepdim=True)) + x.amin(0),
    "positions over two loops": lambda x: x.view(-1, 5, 70).transpose(0, 1).flatten(0, 1).argmax(0),
    "positions beside sums": lambda x: (x.argmin(0), x.double().sum(0)),
    "positions in batches": lambda x: x.view(2, -1, 70).argmax(1),
}


TWO_PASSES = {"positions over two loops"}
"""Programs whose loops are not in the order of the positions."""


def special(dtype, rows):
    """Columns with equal extremes, with both zeros, without finite numbers, and with NaN at several places."""
    x = (torch.rand(rows, 70) * 8 - 4).round().to(dtype)
    if dtype.is_floating_point:
        x[::2, 1], x[1::2, 1] = -0.0, 0.0
        x[:, 2], x[:, 3] = -torch.inf, torch.inf
        x[rows // 3 :: 7, 4:40:3] = torch.nan
        x[0, 5], x[-1, 6] = torch.nan, torch.nan
    return x


def passes(text):
    """How many vector loops read an element of a row that lies across memory."""
    return len(re.findall(r"const \w+ v\d+ = .*a0\[.*r\d.*\]", text))


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("name", PROGRAMS)
@pytest.mark.parametrize("rows", [20, 350])
def test_positions_are_eagers(name, dtype, rows):
    text = check(PROGRAMS[name], special(dtype, rows)).lowered.c
    assert ("best" in text[text.index("kernel_0") :]) == (name not in TWO_PASSES)


def test_each_element_is_read_once():
    assert passes(check(lambda x: (x.argmax(0), x.argmin(0)), torch.randn(90, 70)).lowered.c) == 1


OTHERS = {
    "booleans": lambda x: (x > 0).max(0)[1],
    "the last position": lambda x: torch.where(
        x == x.amax(0), 89 - torch.arange(90)[:, None], 2**63 - 1
    ).amin(0),
    "no position where there is a NaN": lambda x: torch.where(
        x == x.amax(0), torch.arange(90)[:, None], 2**63 - 1
    ).amin(0),
}


@pytest.mark.parametrize("name", OTHERS)
def test_what_is_no_position_of_an_extreme_takes_two_passes(name):
    x = torch.randn(90, 70)
    x[:, 3], x[4, 5] = 0, torch.nan
    text = check(OTHERS[name], x).lowered.c
    assert "best" not in text[text.index("kernel_0") :]


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
def test_positions_in_another_kernel_than_the_extremes(dtype):
    a = (torch.randn(2, 107, 17) * 9).to(dtype).permute(0, 2, 1)
    b = (torch.randn(107, 2, 17) / 9).to(dtype).permute(1, 2, 0)
    f = lambda a, b: (a.reshape(34, 107).sum(0), *(a + b).reshape(34, 107).max(0))
    compiled = compile_graph(trace(f, a, b), (a, b), options=FAST)
    _, values, positions = compiled(a, b)
    assert 0 <= positions.min() <= positions.max() < 34
    found = (a + b).reshape(34, 107).gather(0, positions[None])[0]
    torch.testing.assert_close(values, found, rtol=0, atol=0)
    assert torch.equal(positions, f(a, b)[2])  # the first of those that are equal as eager rounds them
