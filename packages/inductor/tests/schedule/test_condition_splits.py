"""Loops split where conditions on coordinates change: same results as eager, and no decisions left inside."""

import re

import pytest
import torch
import torch.nn.functional as F
from inductor_checks import check, kernels

from fxstack_inductor.schedule.condition_splits import segments

X, Y = torch.randn(2, 5, 40)
IMAGE = torch.randn(2, 3, 12, 20)


def rotate_half(x):
    half = x.shape[-1] // 2
    return torch.cat([-x[..., half:], x[..., :half]], -1)


PROGRAMS = {
    "cat": lambda x, y: torch.cat([x * 2, y + 1, x], 1),
    "cat of rows": lambda x, y: torch.cat([x * 2, y + 1, x], 0),
    "stack": lambda x, y: torch.stack([x, y], -1),
    "pad": lambda x, y: F.pad(x, (3, 2, 1, 1), value=7.0) * 2,
    "cut": lambda x, y: F.pad(x, (-3, 2, 1, -1)),
    "rope": lambda x, y: x * y.cos() + rotate_half(x) * y.sin(),
    "roll": lambda x, y: x.roll(7, 1) + y.roll(-3, 1),
    "roll of rows": lambda x, y: x.roll((2, 5), (0, 1)),
    "flat roll": lambda x, y: x.reshape(-1)[:200].roll(11, 0),
    "one row": lambda x, y: torch.cat([x[0], y[1], x[2] * 3]),
    "replicate": lambda x, y: F.pad(x[None], (4, 3), mode="replicate"),
    "reflect": lambda x, y: F.pad(x[None], (4, 3), mode="reflect"),
    "slice": lambda x, y: torch.slice_scatter(x, y[:, :9], 1, 5, 14),
    "select": lambda x, y: torch.select_scatter(x, y[:, 3], 1, 11),
    "triangle": lambda x, y: x.triu(2) + y.tril(-1),
    "both": lambda x, y: F.pad(torch.cat([x, y], 1), (1, 1)).cumsum(1),
}


@pytest.mark.parametrize("name", PROGRAMS)
def test_as_eager(name):
    check(PROGRAMS[name], X, Y)


@pytest.mark.parametrize("width", [1, 2, 3, 8, 9])
def test_narrow(width):
    check(lambda x, y: (torch.cat([x, y * 2], 1), F.pad(x, (1, 1))), X[:, :width], Y[:, :width])


@pytest.mark.parametrize("name", ["cat", "cat of rows", "pad", "rope", "slice", "one row"])
def test_no_decision_is_left_in_a_vector_loop(name):
    compiled = check(PROGRAMS[name], X, Y)
    body = compiled.lowered.c.partition("void kernel_0")[2]
    loops = re.findall(r"#pragma omp simd[^\n]*\n.*?\n\s*}", body, re.DOTALL)
    assert loops
    assert not any("?" in loop for loop in loops)


def test_images():
    check(lambda x: F.pad(x, (1, 2, 2, 1)) * 2, IMAGE)
    check(lambda x: F.pad(x, (1, 2, 2, 1), mode="reflect") + 1, IMAGE)
    check(lambda x: torch.cat([x, x * 2], 1), IMAGE.contiguous(memory_format=torch.channels_last))


def test_the_parts_are_the_loop():
    (kernel,) = kernels(check(PROGRAMS["pad"], X, Y))
    sizes = [part.outer[-1].extent.as_int() for part in segments(kernel)]
    assert sizes == [3, 40, 2]


def test_symbolic_sizes_stay_one_loop():
    fn = lambda x, y: (torch.cat([x, y], 1), F.pad(x, (1, 2)))
    check(fn, X, Y, symbolic=True, others=[(torch.randn(3, 7), torch.randn(3, 7))])


def test_masks_of_data_stay():
    check(lambda x, y: torch.where(x > 0, F.pad(y, (1, -1)), F.pad(y, (-1, 1))), X, Y)


def test_a_condition_that_bounds_a_row_decides_others():
    compiled = check(lambda x: F.avg_pool2d(x, 3, 1, 1), IMAGE)
    body = compiled.lowered.c.partition("void kernel_0")[2]
    # The first row, rows inside and the last row, of three parts of columns.
    assert body.count("else {") == 2 * 3
